package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// alone are the settings of a server on which nothing but the test commits, and waits for a standby.
var alone = map[string]string{"autovacuum": "off"}

// standby makes commits of a server wait for a standby that doesn't exist.
type standby struct {
	t    *testing.T
	pool *pgxpool.Pool
}

// lose returns once commits wait.
func (s standby) lose() {
	s.t.Helper()
	s.t.Cleanup(func() {
		_, _ = s.pool.Exec(context.Background(), "alter system reset synchronous_standby_names")
		_, _ = s.pool.Exec(context.Background(), "select pg_reload_conf()")
	})
	mustExec(s.t, s.pool, "alter system set synchronous_standby_names = 'missing'")
	mustExec(s.t, s.pool, "select pg_reload_conf()")
	for {
		probe := background(func() (pgconn.CommandTag, error) {
			return s.pool.Exec(context.Background(), "create table "+unique("probe")+"()")
		})
		var waits bool
		require.Eventually(s.t, func() bool {
			waits = query[bool](s.t, s.pool, "select count(*) > 0 from pg_stat_activity where wait_event = 'SyncRep'")
			return waits || len(probe) > 0
		}, time.Minute, time.Millisecond)
		if waits {
			s.signal("cancel")
			require.NoError(s.t, (<-probe).err)
			return
		}
		<-probe
	}
}

// regain lets waiting commits go on.
func (s standby) regain() {
	s.t.Helper()
	mustExec(s.t, s.pool, "alter system reset synchronous_standby_names")
	mustExec(s.t, s.pool, "select pg_reload_conf()")
	eventually(s.t, s.pool, "select current_setting('synchronous_standby_names') = ''")
}

// signal waits for the backend that waits for its standby, and cancels or
// terminates it.
func (s standby) signal(how string) {
	s.t.Helper()
	pid := waiting(s.t, s.pool, "SyncRep")
	require.True(s.t, query[bool](s.t, s.pool, "select pg_"+how+"_backend($1)", pid))
}

// A commit that a standby has not confirmed is neither success nor failure, and Resolve
// doesn't say that it took effect before it is as durable as any commit.
func TestCommit_NotConfirmedByTheStandbyIsInDoubt(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, alone)
	for name, c := range map[string]struct{ how, setting string }{
		"cancelled":                          {"cancel", ""},
		"cancelled, warnings are turned off": {"cancel", "set client_min_messages = error"},
		"terminated":                         {"terminate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := openPool(t, dsn)
			store := newStore(t, pool, nil)
			standby := standby{t, openPool(t, dsn)}
			g := grantOf(name, 5)
			claimed := claim(t, store, g)
			txn := begin(t, store, claimed)
			if c.setting != "" {
				require.NoError(t, txn.Run(t.Context(), statement(c.setting)))
			}
			require.NoError(t, txn.Run(t.Context(), set(name, 1)))
			standby.lose()
			commit := commit(txn)
			standby.signal(c.how)
			doubt := inDoubt(t, (<-commit).err)
			holds(t, pool, name, 1)

			resolve := background(func() (bool, error) { return store.Resolve(context.Background(), doubt) })
			standby.signal("cancel")
			require.Error(t, (<-resolve).err)

			resolve = background(func() (bool, error) { return store.Resolve(context.Background(), doubt) })
			waiting(t, standby.pool, "SyncRep")
			require.Empty(t, resolve)
			standby.regain()
			answer := <-resolve
			require.NoError(t, answer.err)
			require.True(t, answer.value)
		})
	}
}

// A claim that a failover could still undo doesn't succeed, and a repeated one waits as the
// first did.
func TestClaim_NotConfirmedByTheStandbyFails(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, alone)
	store := newStore(t, openPool(t, dsn), nil)
	standby := standby{t, openPool(t, dsn)}
	require.NoError(t, store.Check(t.Context()))
	standby.lose()
	for range 2 {
		claimed := background(func() (storage.Claim, error) { return claimOne(context.Background(), store, grant(5, "a")) })
		standby.signal("cancel")
		require.Error(t, (<-claimed).err)
	}
	claimed := background(func() (storage.Claim, error) { return claimOne(context.Background(), store, grant(5, "a")) })
	waiting(t, standby.pool, "SyncRep")
	require.Empty(t, claimed)
	standby.regain()
	require.NoError(t, (<-claimed).err)
	require.Equal(t, []storage.EntryKind{storage.KindClaim}, kinds(t, store))
}
