package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
)

// load is processes that write all the time, and one, the witness, that keeps a resource and
// writes when it is told to. Each operation adds one to a counter, by what it has read, and a row.
type load struct {
	*ledger
	t         *testing.T
	pool      *pgxpool.Pool // once the database is where it stays
	witness   *process
	witnessed int
	end       func()
	stopped   sync.RWMutex // held for writing while services are stopped
}

var loaded = []string{"a", "b"}

func startLoad(t *testing.T, endpoint, dsn string, pool *pgxpool.Pool, opts ...grpc.DialOption) *load {
	t.Helper()
	_, err := pool.Exec(t.Context(), "insert into counter values ('witness', 0)")
	require.NoError(t, err)
	l := &load{ledger: newLedger(), t: t, pool: pool, witness: newProcess(t, endpoint, dsn, etcd.Config{}, &guard.Config{KeepFor: time.Hour}, opts...)}
	working, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for n := range 2 {
		p := newProcess(t, endpoint, dsn, etcd.Config{}, &guard.Config{
			StoreTimeout: time.Second, ResolveTimeout: time.Second}, opts...)
		for _, resource := range loaded {
			workers.Go(func() { l.work(working, p, fmt.Sprintf("%d%s", n, resource), resource) })
		}
	}
	l.end = func() { stop(); workers.Wait() }
	t.Cleanup(l.end)
	return l
}

// work makes operations until ctx ends, some tens a second: more would show no more.
func (l *load) work(ctx context.Context, p *process, worker, resource string) {
	for n := 0; ctx.Err() == nil; n++ {
		l.stopped.RLock()
		_ = l.write(ctx, p, fmt.Sprintf("%s/%06d", worker, n), resource) // noted
		l.stopped.RUnlock()
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// write makes an operation, notes its outcome, and returns it.
func (l *load) write(ctx context.Context, p *process, id, resource string) error {
	err := guard.Do(context.WithoutCancel(ctx), p.Guard, resource, func(ctx context.Context, tx pgx.Tx) error {
		if err := increment(resource)(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into ballast values ($1)", id)
		return err
	}, guard.OpID(id))
	l.note(id, err)
	return err
}

// witnesses has the witness write.
func (l *load) witnesses() error {
	l.witnessed++
	return l.write(l.t.Context(), l.witness, fmt.Sprintf("witness/%06d", l.witnessed), "witness")
}

// requireProgress requires that the load goes on by itself.
func (l *load) requireProgress() {
	l.t.Helper()
	before := l.progress.Load()
	require.Eventually(l.t, func() bool { return l.progress.Load() > before+20 }, time.Minute, time.Millisecond, "it doesn't go on")
}

// said is what the services' logs have, in some order.
func (l *load) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.acknowledged))
}

// checkLost ends the load and requires that lost is exactly what was acknowledged and is gone,
// that what was acknowledged otherwise is there, and that no update was lost among all that is
// there.
func (l *load) checkLost(lost []string) {
	l.t.Helper()
	l.end()
	rows, err := l.pool.Query(l.t.Context(), "select s from ballast")
	require.NoError(l.t, err)
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(l.t, err)
	gone := slices.DeleteFunc(l.said(), func(id string) bool { return slices.Contains(written, id) })
	slices.Sort(gone)
	require.NotEmpty(l.t, gone, "nothing was lost: the test is inconclusive")
	require.Equal(l.t, gone, lost)
	for id, err := range l.failed {
		require.NotContains(l.t, written, id, "%v", err)
	}
	for _, resource := range append(loaded, "witness") {
		n := 0
		for _, id := range written {
			if worker, _, _ := strings.Cut(id, "/"); strings.TrimLeft(worker, "01") == resource {
				n++
			}
		}
		require.EqualValues(l.t, n, value(l.t, l.pool, resource), "an update of %s was lost or made twice", resource)
	}
	l.t.Logf("acknowledged %d, lost %d, failed %d, unknown %d", len(l.acknowledged), len(gone), len(l.failed), len(l.unknown))
}

// ledger is the outcomes of operations, each of which writes its own row.
type ledger struct {
	mu           sync.Mutex
	acknowledged map[string]bool
	failed       map[string]error
	unknown      map[string]*guard.UnknownOutcomeError
	progress     atomic.Int64
}

func newLedger() *ledger {
	return &ledger{acknowledged: map[string]bool{}, failed: map[string]error{}, unknown: map[string]*guard.UnknownOutcomeError{}}
}

func (l *ledger) note(id string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var unknown *guard.UnknownOutcomeError
	switch {
	case err == nil:
		l.acknowledged[id] = true
		l.progress.Add(1)
	case errors.As(err, &unknown):
		l.unknown[id] = unknown
	default:
		l.failed[id] = err
	}
}

// check asks about what is unknown, and compares what was said with what is there.
func (l *ledger) check(t *testing.T, ctx context.Context, pool *pgxpool.Pool, resources []string) {
	t.Helper()
	rows, err := pool.Query(ctx, "select s from ballast")
	require.NoError(t, err)
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	there := func(id string) bool { return slices.Contains(written, id) }
	applied := len(l.acknowledged)
	for id := range l.acknowledged {
		require.True(t, there(id), "%s was acknowledged", id)
	}
	for id, err := range l.failed {
		require.False(t, there(id), "%s failed: %v", id, err)
	}
	for id, unknown := range l.unknown {
		var took bool
		require.Eventually(t, func() bool { // connections from before the last restart may be in the pool
			took, err = unknown.Resolve(ctx)
			return err == nil
		}, time.Minute, 10*time.Millisecond, id)
		require.Equal(t, took, there(id), "%s: %v", id, unknown)
		if took {
			applied++
		}
	}
	var sum int64
	for _, resource := range resources {
		sum += value(t, pool, resource)
	}
	require.EqualValues(t, applied, sum, "an update was lost or made twice")
	require.Len(t, written, applied)
	t.Logf("acknowledged %d, failed %d, unknown %d", len(l.acknowledged), len(l.failed), len(l.unknown))
}
