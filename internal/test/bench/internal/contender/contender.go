// Package contender has what the benchmark compares: Fencekit, and what is used in its place. For each of its
// keys the operation reads a row's quantity, and writes it back less one. So a contender that doesn't exclude
// others loses updates, which shows in the sum afterwards.
package contender

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
)

// Contender is one way to do what a scenario is about.
type Contender struct {
	Name        string
	Open        load.Open
	Connections int // in place of the scenario's, unless 0
	// Unsafe says what it may do wrong. Empty for what is as safe as a lock can be.
	Unsafe string
}

// What is wrong with contenders.
const (
	noFence     = "a holder that is paused for longer than the lock lasts writes beside its successor"
	noGuard     = "concurrent updates of one row are lost"
	noCheck     = "a holder whose lock another has taken is answered with old data"
	noGuarantee = "an unknown COMMIT can't be resolved, a failover isn't noticed, and a paused holder's locks stay"
	redisTTL    = "Redis forgets the lock when it fails over, and a paused holder writes beside its successor"
)

// kept is a Guard's configuration that keeps resources for longer than a cell takes.
var kept = guard.Config{KeepFor: time.Hour}

// Operations in transactions that Fencekit doesn't guard.
var (
	Bare         = Contender{Name: "bare transaction", Open: transaction(pgx.TxOptions{}, sellReading), Unsafe: noGuard}
	BareRead     = Contender{Name: "bare READ ONLY transaction", Open: transaction(pgx.TxOptions{AccessMode: pgx.ReadOnly}, look), Unsafe: noCheck}
	AtomicUpdate = Contender{Name: "one atomic UPDATE, no transaction", Open: onPool(update)}
	ForUpdate    = Contender{Name: "SELECT FOR UPDATE", Open: transaction(pgx.TxOptions{}, sell(lockQty))}
	AdvisoryLock = Contender{Name: "advisory lock", Open: transaction(pgx.TxOptions{}, sellUnderAdvisoryLock)}
	OwnFence     = Contender{Name: "a token compared, counted and recorded, no more", Open: ownFence, Unsafe: noGuarantee}
)

// Operations under a Guard.
var (
	Do           = Contender{Name: "guard.Do", Open: onGuard(inEtcd, kept, do)}
	DoOnPostgres = Contender{Name: "guard.Do, locks in Postgres", Open: onGuard(inPostgres, kept, do)}
	DoRead       = Contender{Name: "guard.Do, ReadOnly", Open: onGuard(inEtcd, kept, read)}
	Batch        = Contender{Name: "postgres.Batch", Open: onGuard(inEtcd, kept, execBatch)}
)

// DoInFleet are operations under a Guard as it is by default, with each lock service.
var DoInFleet = []Contender{
	{Name: DoOnPostgres.Name, Open: onGuard(inPostgres, guard.Config{}, do)},
	{Name: "guard.Do, locks in etcd", Open: onGuard(inEtcd, guard.Config{}, do)},
	{Name: "guard.Do, locks in Redis", Open: onGuard(inRedis, guard.Config{}, do)},
}

// Operations under a lock without a fence.
var (
	MutexTx   = locked("etcd Mutex", mutex, noFence)
	RedsyncTx = locked("redsync", redsyncLock, redisTTL)
)

// Pools is the contender with several numbers of connections, one of which is its best.
func (c Contender) Pools(connections ...int) (all []Contender) {
	name := c.Name
	for _, n := range connections {
		c.Name, c.Connections = fmt.Sprintf("%s, %d connections", name, n), n
		all = append(all, c)
	}
	return all
}

// Names of contenders.
func Names(all ...Contender) (names []string) {
	for _, c := range all {
		names = append(names, c.Name)
	}
	return names
}
