package soak_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

const (
	workerCount         = 4
	goroutinesPerWorker = 6
)

// Transfers between accounts, in opposite orders, from several processes: whatever
// happens to them, the sums are exact, what was said of each is true, and no
// deadlock reaches a caller (G4, HB10).
func TestTransfers_SumsAreExactUnderFaults(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := seed(t)
	log := &deadlockCount{}
	pool := startBank(t, log)
	etcd := etcdserver.Shared(t)
	cuts := &cuts{random: rand.New(rand.NewPCG(s, 1)), every: 20}
	proxy, err := pgproxy.New(pool.Config().ConnString())
	require.NoError(t, err)
	defer func() { require.NoError(t, proxy.Close()) }()
	proxy.OnQuery(cuts.rule)

	trace := newTrace()
	var workers []*member
	for i := range workerCount {
		m := &member{trace: trace, spec: workerSpec{
			Worker: i, First: 0, Count: *opsFlag / workerCount, Goroutines: goroutinesPerWorker, Seed: s,
			Endpoint: etcd.Endpoint(), DSN: proxy.DSN(), Prefix: t.Name(),
		}}
		require.NoError(t, m.start())
		defer func() { require.NoError(t, m.child.Kill()) }() // in case the test fails
		workers = append(workers, m)
	}
	n := &nemesis{
		random: rand.New(rand.NewPCG(s, 2)), workers: workers, etcd: etcdserver.Client(t),
		locks: t.Name() + "/locks/", pool: pool, cuts: cuts,
	}
	start := time.Now()
	n.injectFaults(t)
	for _, m := range workers {
		m.await(t)
	}
	took := time.Since(start)

	for _, line := range trace.summary() {
		t.Log(line)
	}
	t.Logf("%d operations in %v, %.0f/s; longest %v; %d runs beyond the first; %d deadlocks in the server",
		trace.done(), took.Round(time.Second), float64(trace.done())/took.Seconds(), time.Duration(trace.longest)*time.Millisecond, trace.retries, log.found())
	t.Logf("faults: workers stopped %d (and superseded %d), killed %d (in %d operations); leases revoked %d; backends terminated %d; COMMITs cut %d, answers cut %d, questions cut %d",
		n.stopped, n.succeeded, n.killed, len(trace.ops)-trace.done(), n.revoked, n.terminated, cuts.commits, cuts.replies, cuts.questions)
	require.Empty(t, readLedger(t, ctx, pool).check(s, trace.ops))
	checkHit(t, n, trace)
}

// injectFaults injects faults at regular amounts of work, until all workers have ended.
func (n *nemesis) injectFaults(t *testing.T) {
	trace := n.workers[0].trace
	b := bag{random: n.random, kinds: n.faults(t.Context())}
	every := max(1, min(100, *opsFlag/10))
	for next := every; n.victim() != nil; {
		<-trace.changed
		for trace.done() >= next && n.victim() != nil {
			f := b.next()
			require.NoError(t, f.happen(), f.name)
			next = max(next, trace.done()) + every
		}
	}
}

// checkHit fails for a run in which a kind of fault was not hit: it shows nothing.
func checkHit(t *testing.T, n *nemesis, trace *trace) {
	for what, count := range map[string]int{
		"another worker went on where one was stopped": n.succeeded, "a worker was killed": n.killed, "a lease was revoked": n.revoked,
		"a backend was terminated": n.terminated, "a COMMIT was cut": n.cuts.commits, "an answer was cut": n.cuts.replies,
		"a lease was lost": trace.count(string(leaseLost)), "a grant was rejected": trace.count(string(rejected)),
		"an outcome was unknown": trace.count(string(unknown)), "an operation ran again": trace.retries,
		"a doubt was resolved as applied": trace.count("resolved applied=true"), "a doubt was resolved as not applied": trace.count("resolved applied=false"),
	} {
		if count == 0 {
			t.Errorf("it was not so that %s: this run shows nothing", what)
		}
	}
}

// startBank returns a pool on a database of a server of its own with the opening
// balances.
func startBank(t *testing.T, log *deadlockCount) *pgxpool.Pool {
	ctx := t.Context()
	server, err := pgserver.Start(ctx, &pgserver.Config{
		Settings: map[string]string{"deadlock_timeout": "100ms"}, // below lock_timeout, which would hide deadlocks
		Log:      log,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	dsn, err := server.CreateDatabase(ctx, "bank")
	require.NoError(t, err)
	pool, err := newPool(ctx, dsn, 4, "soak-test")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(ctx, pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, transferSchema)
	require.NoError(t, err)
	for n := range accounts {
		_, err = pool.Exec(ctx, "insert into account values ($1, $2, 0)", account(n), openingBalance)
		require.NoError(t, err)
	}
	return pool
}

// deadlockCount counts the deadlocks that a server's log speaks of.
type deadlockCount struct {
	mu    sync.Mutex
	count int
	rest  []byte // an unfinished line
}

func (d *deadlockCount) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := append(d.rest, p...)
	end := bytes.LastIndexByte(text, '\n') + 1
	d.count += bytes.Count(text[:end], []byte("ERROR:  deadlock detected"))
	d.rest = bytes.Clone(text[end:])
	return len(p), nil
}

func (d *deadlockCount) found() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}
