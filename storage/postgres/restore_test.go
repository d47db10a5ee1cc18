package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// restore is a database whose volume can be put back.
type restore struct {
	server *pgserver.Server
	pool   *pgxpool.Pool
	store  *postgres.Store
	volume *pgserver.Volume
}

func newRestore(t *testing.T) *restore {
	t.Helper()
	server, dsn := startLocal(t, nil)
	pool := openPool(t, dsn)
	return &restore{server: server, pool: pool, store: newStore(t, pool, nil)}
}

// save copies the volume, and restore puts the copy back.
func (r *restore) save(t *testing.T) {
	t.Helper()
	var err error
	r.volume, err = r.server.CopyData(t.Context())
	require.NoError(t, err)
	r.pool.Reset()
}

func (r *restore) restore(t *testing.T) {
	t.Helper()
	require.NoError(t, r.server.PutBack(t.Context(), r.volume))
	r.pool.Reset()
}

// rejects requires that a transaction under c is rejected as want, with the rejection
// recorded and the data left alone.
func (r *restore) rejects(t *testing.T, c storage.Claim, want storage.Reason) {
	t.Helper()
	before := query[int64](t, r.pool, "select coalesce(sum(value), 0)::bigint from item")
	_, err := attempt(t.Context(), r.store, set("x", 99), c)
	requireRejected(t, err, want)
	require.Equal(t, before, query[int64](t, r.pool, "select coalesce(sum(value), 0)::bigint from item"))
}

// A database whose volume was restored to an older state rejects a holder that has seen a
// newer one, with an error of its own and not as stale. It accepts no token lower than
// those it knows, nor another holder's equal one.
//
// The restore undoes the claim of a successor. The superseded holder finds the database
// exactly as it last saw it, position and transaction, and may go on: nothing of the
// successor's work is left. If it has seen one position more, it may not. The successor may
// not go on in either case, even if other moves have taken its positions again.
func TestRestore_OfAnOlderVolumeIsNoticed(t *testing.T) {
	t.Parallel()
	const identity = "select system_identifier || ' ' || ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer from pg_control_system()"
	for name, seenMore := range map[string]bool{"as it last saw it": false, "behind what it saw": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestore(t)
			before := query[string](t, r.pool, identity)
			old := write(t, r.store, claim(t, r.store, grant(5, "a")), set("x", 1))
			r.save(t)
			if seenMore {
				old = write(t, r.store, old, set("x", 2))
			}
			successor := write(t, r.store, claim(t, r.store, grant(6, "b")), set("x", 3))
			added := write(t, r.store, claim(t, r.store, grantOf("sku/2", 7)), set("y", 1))
			r.rejects(t, old, storage.ReasonStale)
			r.restore(t)
			require.Equal(t, before, query[string](t, r.pool, identity), "neither tells that anything happened")

			r.rejects(t, added, storage.ReasonWentBack)
			r.rejects(t, successor, storage.ReasonWentBack)
			_, err := claimOne(t.Context(), r.store, grant(4, "z"))
			require.ErrorIs(t, err, storage.ErrStaleToken)
			_, err = claimOne(t.Context(), r.store, grant(5, "z"))
			requireRejected(t, err, storage.ReasonCollision)
			if seenMore {
				r.rejects(t, old, storage.ReasonWentBack)
				old = claim(t, r.store, old.Grant)
			}
			want := int64(1)
			for old.Seq <= successor.Seq { // fills the successor's positions
				old = write(t, r.store, old, add("x", 1))
				want++
				r.rejects(t, successor, storage.ReasonWentBack)
			}
			holds(t, r.pool, "x", want)

			// The successor's grant is higher than any that the database knows, so it may
			// claim again, and then works on the data as it is.
			again := claim(t, r.store, successor.Grant)
			r.rejects(t, successor, storage.ReasonOvertaken)
			r.rejects(t, old, storage.ReasonStale)
			write(t, r.store, again, add("x", 1))
			holds(t, r.pool, "x", want+1)
			verifyChain(t, r.pool)
		})
	}
}

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

	c := claim(t, store, grant(5, "a"))
	crash(t, server, pool)
	_, err := claimOne(t.Context(), store, grant(4, "z"))
	require.ErrorIs(t, err, storage.ErrStaleToken)
	require.Equal(t, c, claim(t, store, c.Grant))

	txn := begin(t, store, c)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	require.NoError(t, txn.Run(t.Context(), statement("set local synchronous_commit = off")))
	moved, err := txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	crash(t, server, pool)
	holds(t, pool, "x", 1)
	require.Equal(t, moved[0], claim(t, store, c.Grant))

	require.False(t, applied(t, store, storage.InDoubt{Claims: moved, Tx: 9}))
	crash(t, server, pool)
	_, err = attempt(t.Context(), store, set("x", 2), moved[0])
	require.ErrorIs(t, err, storage.ErrOvertaken)
	require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindVoid}, kinds(t, store))
	verifyChain(t, pool)
}
