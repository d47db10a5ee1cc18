package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

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

// run does operations on a resource until ctx ends, each with a context of its own.
func (l *ledger) run(ctx context.Context, p *process, worker, resource string) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s/%d", worker, n)
		err := guard.Do(context.WithoutCancel(ctx), p.Guard, resource, func(ctx context.Context, tx pgx.Tx) error {
			if err := increment(resource)(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "insert into ballast values ($1)", id)
			return err
		}, guard.OpID(id))
		l.note(id, err)
	}
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

// Postgres, or the pooler in front of it, restarts again and again under load. Every caller
// gets a true outcome or can resolve it later; each time all callers go on by themselves.
func TestRestarts_UnderLoadLeaveEveryOutcomeKnown(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(ctx context.Context, server *pgserver.Server, pooler *pgbouncer.Pooler) error{
		"Postgres crashes": func(ctx context.Context, server *pgserver.Server, _ *pgbouncer.Pooler) error {
			return errors.Join(server.Kill(), server.Restart(ctx))
		},
		"Postgres is restarted": func(ctx context.Context, server *pgserver.Server, _ *pgbouncer.Pooler) error {
			return server.Restart(ctx)
		},
		"the pooler crashes": func(ctx context.Context, _ *pgserver.Server, pooler *pgbouncer.Pooler) error {
			return errors.Join(pooler.Kill(), pooler.Restart(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resources := []string{"a", "b", "c"}
			server, dsn, pool := ownPostgres(t, resources...)
			pooler, err := pgbouncer.Start(t.Context(), server, &pgbouncer.Config{Settings: map[string]string{"server_login_retry": "0.1"}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pooler.Stop(context.Background())) })
			through, err := pooler.DSN(dsn)
			require.NoError(t, err)
			ctx := patiently(t)
			working, stop := context.WithCancel(ctx)
			l := newLedger()
			var workers sync.WaitGroup
			for n := range 2 {
				p := newProcess(t, etcdserver.Shared(t).Endpoint(), through+"&default_query_exec_mode=exec", etcd.Config{}, &guard.Config{
					MaxHold: 5 * time.Millisecond, StoreTimeout: time.Second, CommitTimeout: time.Second, ResolveTimeout: time.Second,
				})
				for _, resource := range resources {
					workers.Go(func() { l.run(working, p, fmt.Sprint(n, resource), resource) })
				}
			}
			for range 4 {
				before := l.progress.Load()
				require.Eventually(t, func() bool { return l.progress.Load() > before+10 }, time.Minute, time.Millisecond, "it doesn't go on")
				require.NoError(t, again(ctx, server, pooler))
			}
			before := l.progress.Load()
			require.Eventually(t, func() bool { return l.progress.Load() > before+10 }, time.Minute, time.Millisecond, "it doesn't go on")
			stop()
			workers.Wait()
			pool.Reset()
			l.check(t, ctx, pool, resources)
		})
	}
}
