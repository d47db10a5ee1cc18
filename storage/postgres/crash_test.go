package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
)

// lazy are settings with which a server that may acknowledge a commit before it has written
// its log does so long enough before that it can crash in between.
var lazy = map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "bgwriter_lru_maxpages": "0"}

// crash kills a server at once and restarts it, after a commit of the user's own. That
// commit must be lost, or the test would show nothing.
func crash(t testing.TB, server *pgserver.Server, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "insert into item values ('unguarded', 1)")
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	pool.Reset()
	asleep(t, pool)
	require.Zero(t, query[int](t, pool, "select count(*) from item where key = 'unguarded'"), "the crash has lost nothing")
}

// asleep waits until the server's log writer sleeps for wal_writer_delay: the first
// time that it is woken after a start, by a full page of the log, it flushes.
func asleep(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	mustExec(t, pool, "create table if not exists filler (text text)")
	mustExec(t, pool, "insert into filler select string_agg(md5(i::text), '') from generate_series(1, 2000) i")
	end := query[string](t, pool, "select pg_current_wal_insert_lsn()::text")
	eventually(t, pool, "select pg_current_wal_flush_lsn() > $1::text::pg_lsn - 8192", end)
	eventually(t, pool, "select count(*) = 1 from pg_stat_activity where backend_type = 'walwriter' and wait_event = 'WalWriterMain'")
}

// A transaction that was acknowledged to the guard survives a crash of the server, even if
// role, database or operation ask for asynchronous commits.
func TestCrash_LosesNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	server, dsn := startServer(t, lazy)
	pool := openPool(t, dsn)
	lax(t, pool)
	pool.Reset()
	asleep(t, pool)
	store := newStore(t, pool, nil)
	var c storage.Claim
	for _, step := range []struct {
		name  string
		do    func(t *testing.T)
		check func(t *testing.T)
	}{
		{"a claim", func(t *testing.T) { c = claim(t, store, grant(5, "a")) }, func(t *testing.T) {
			_, err := store.Claim(t.Context(), storage.Claim{Grant: grant(4, "z")})
			require.ErrorIs(t, err, storage.ErrStaleToken)
			require.Equal(t, c, claim(t, store, c.Grant))
		}},
		{"a write", func(t *testing.T) {
			txn := begin(t, store, c)
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			require.NoError(t, txn.Run(t.Context(), statement("set local synchronous_commit = off")))
			moved, err := txn.Commit(t.Context(), nil)
			require.NoError(t, err)
			c = moved[0]
		}, func(t *testing.T) {
			holds(t, pool, "x", 1)
			require.Equal(t, c, claim(t, store, c.Grant))
		}},
		{"the answer that a transaction took no effect", func(t *testing.T) {
			applied, err := store.Resolve(t.Context(), storage.InDoubt{Claims: []storage.Claim{c}, Tx: 9})
			require.NoError(t, err)
			require.False(t, applied)
		}, func(t *testing.T) {
			_, err := attempt(t.Context(), store, set("x", 2), c)
			require.ErrorIs(t, err, storage.ErrOvertaken)
			require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindVoid}, kinds(t, store))
		}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.do(t)
			crash(t, server, pool)
			step.check(t)
		})
	}
	verifyChain(t, pool)
}
