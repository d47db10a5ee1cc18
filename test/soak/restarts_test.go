package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

const (
	processes  = 3
	callerTTL  = 2 * time.Second
	callerName = "soak-caller"

	outcomeUnknown = "outcome unknown"
)

// Servers are killed, stopped and paused under callers of every kind. No update is lost, the
// outcomes that callers get are true, every caller makes progress after each outage, and at
// the end nothing is left in etcd, in Postgres or in this process (G3, G4, L1).
func TestRestarts_LoseNothingAndLeaveNothing(t *testing.T) {
	ctx := t.Context()
	s := seed(t)
	o := startServers(t, s)
	dsn, err := o.postgres.CreateDatabase(ctx, "restarts")
	require.NoError(t, err)
	pool, err := newPool(ctx, dsn, 2, "soak-test")
	require.NoError(t, err)
	defer pool.Close()
	makeCounters(t, pool)
	o.proxy, err = pgproxy.New(dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, o.proxy.Close()) }()
	o.proxy.OnQuery(o.cuts.rule)
	client, err := o.etcd.Client(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()

	var clients []*clientv3.Client
	for range processes {
		client, err := o.etcd.Client(context.Background())
		require.NoError(t, err)
		defer func() { require.NoError(t, client.Close()) }()
		clients = append(clients, client)
	}
	for _, c := range append(clients, client) { // so that all are connected
		_, err := c.Get(ctx, t.Name())
		require.NoError(t, err)
	}
	before := runtime.NumGoroutine()

	var rejections counts
	var ps []*process
	for _, client := range clients {
		ps = append(ps, startProcess(t, o, client, &rejections))
	}
	stop := make(chan struct{})
	where := &site{journal: newJournal(t), stop: stop, stalls: newStalls(), fail: t.Errorf}
	var callers sync.WaitGroup
	for i := range *goroutinesFlag {
		c := &caller{name: fmt.Sprint(i), random: rand.New(rand.NewPCG(s, uint64(i)+10)), own: ps[i%processes], all: ps, site: where}
		callers.Go(c.work)
	}
	var heap heapWatch
	callers.Go(func() { heap.watch(max(*durationFlag/100, 250*time.Millisecond), stop) })

	start := time.Now()
	recovery, err := o.last(ctx, *durationFlag, func(ctx context.Context, since time.Time) error {
		return where.stalls.awaitProgress(ctx, ps, since)
	})
	took := time.Since(start)
	close(stop)
	callers.Wait()
	where.report(t, took, recovery)
	t.Logf("outages: %v; rejections, lost leases and unknown outcomes: %v", o.hit, rejections.all())
	require.NoError(t, err)
	require.Positive(t, rejections.all()[outcomeUnknown], "no outcome was ever unknown: the run is inconclusive")

	for _, p := range ps {
		p.pool.Reset() // each connection has goroutines in the proxy
	}
	checkGoroutines(t, "while nothing is called", before+processes*idleGoroutines)
	closeAll(t, ctx, ps)
	checkNothingInEtcd(t, client, t.Name())
	checkNothingInPostgres(t, pool, "open transactions", openTransactions)
	checkNothingInPostgres(t, pool, "advisory locks", advisoryLocks)
	for _, p := range ps {
		p.pool.Close()
	}
	checkNothingInPostgres(t, pool, "connections", connections)
	checkGoroutines(t, "after everything but the clients is closed", before)
	states, traces := readCounters(t, ctx, pool)
	require.Empty(t, checkCounters(states, traces, where.journal.all(t)))
	t.Log(heap)
	require.False(t, heap.grows(), "%v", []uint64(heap))
}

func startServers(t *testing.T, seed uint64) *outage {
	o := &outage{random: rand.New(rand.NewPCG(seed, 3)), cuts: &cuts{random: rand.New(rand.NewPCG(seed, 4))}, hit: map[string]int{}}
	var err error
	o.etcd, err = etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.etcd.Stop(context.Background())) })
	o.postgres, err = pgserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.postgres.Stop(context.Background())) })
	return o
}

// process is what one process of a service has.
type process struct {
	guard  *guard.Guard[pgx.Tx]
	locker *etcd.Locker
	pool   *pgxpool.Pool
}

func startProcess(t *testing.T, o *outage, client *clientv3.Client, rejections *counts) *process {
	p := &process{}
	var err error
	p.pool, err = newPool(context.Background(), o.proxy.DSN(), 12, callerName)
	require.NoError(t, err)
	t.Cleanup(p.pool.Close)
	p.locker, err = etcd.NewLocker(client, &etcd.Config{Prefix: t.Name(), TTL: callerTTL})
	require.NoError(t, err)
	store, err := postgres.NewStore(p.pool, &postgres.Config{LockTimeout: time.Second, StatementTimeout: 1500 * time.Millisecond, IdleTimeout: 1500 * time.Millisecond})
	require.NoError(t, err)
	p.guard, err = guard.New(p.locker, store, &guard.Config{
		StoreTimeout: 3 * time.Second, CommitTimeout: 1500 * time.Millisecond, ResolveTimeout: resolveTimeout,
		Observers: []*guard.Observer{{
			Rejected: func(_ context.Context, r *guard.RejectedError) {
				rejections.add(string(r.Reason) + " at " + string(r.Stage))
			},
			LeaseLost: func(l *fence.LeaseLostError, _ bool) { rejections.add("lease lost: " + string(l.Reason)) },
			Finished: func(_ context.Context, f guard.Operation) {
				if f.Outcome == guard.OutcomeUnknown {
					rejections.add(outcomeUnknown)
				}
			},
		}},
	})
	require.NoError(t, err)
	return p
}

// closeAll closes what uses the servers, in good order: they are well again.
func closeAll(t *testing.T, ctx context.Context, ps []*process) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	for _, p := range ps {
		require.NoError(t, p.guard.Close(ctx))
		require.NoError(t, p.locker.Close(ctx))
	}
}

func (w *site) report(t *testing.T, took, recovery time.Duration) {
	s := &w.stalls
	t.Logf("%d operations succeeded and %d failed in %v, %.0f/s; of outcomes unknown at first %d were applied, %d not",
		s.succeeded, s.failed, took.Round(time.Second), float64(s.succeeded)/took.Seconds(), w.journal.count(applied), w.journal.count(notApplied))
	t.Logf("longest operation %v; longest time without any success %v; longest wait of a process for its first success after an outage %v",
		s.longest.Round(time.Millisecond), s.silence.Round(time.Millisecond), recovery.Round(time.Millisecond))
	for kind, n := range s.errors {
		t.Logf("%6d failed with %s, such as: %s", n, kind, s.examples[kind])
	}
}

// counts counts by name.
type counts struct {
	mu sync.Mutex
	m  map[string]int
}

func (c *counts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]int{}
	}
	c.m[name]++
}

func (c *counts) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m
}
