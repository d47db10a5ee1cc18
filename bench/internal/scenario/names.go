package scenario

import (
	"fmt"
	"time"

	"github.com/fencekit/fencekit/bench/internal/contender"
	"github.com/fencekit/fencekit/guard"
)

// Names of contenders.
const (
	bare         = "bare transaction"
	guardDo      = "guard.Do"
	batchForm    = "postgres.Batch"
	batchAlone   = "postgres.Batch, a Guard for each goroutine"
	atomic       = "one atomic UPDATE, no transaction"
	forUpdate    = "SELECT FOR UPDATE"
	optimistic   = "version column, retried"
	serializable = "SERIALIZABLE, retried"
	advisory     = "advisory lock"
	mutexTx      = "etcd Mutex + transaction"
	redsyncTx    = "redsync + transaction"
	locker       = "Fencekit's Locker"
	mutex        = "etcd Mutex"
	redsync      = "redsync"
	setNX50      = "Redis SET NX, every 50 ms"
	setNX1       = "Redis SET NX, every 1 ms"
	pgLock       = "pglock"
	ownFence     = "a token compared, counted and recorded, no more"
)

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

// released is one that keeps nothing from call to call.
var released = guard.Config{KeepFor: -1}

// atBest is a contender with several numbers of connections, one of which is its best.
func atBest(c Contender, connections ...int) (all []Contender, names []string) {
	for _, n := range connections {
		one := c
		one.Name, one.Connections = fmt.Sprintf("%s, %d connections", c.Name, n), n
		all, names = append(all, one), append(names, one.Name)
	}
	return all, names
}

// lockContenders only acquire and release.
func lockContenders() []Contender {
	return []Contender{
		{Name: mutex, Open: contender.Mutex},
		{Name: locker, Open: contender.Locker, Fencekit: true},
	}
}
