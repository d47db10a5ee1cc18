package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// startLocal is startServer for a server whose files are at hand.
func startLocal(t testing.TB, settings map[string]string) (server *pgserver.Server, dsn string) {
	t.Helper()
	server, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true, Settings: settings})
	require.NoError(t, err)
	stopLater(t, server)
	dsn, err = server.CreateDatabase(t.Context(), "app")
	require.NoError(t, err)
	require.NoError(t, migrate(t.Context(), dsn))
	return server, dsn
}

func stopLater(t testing.TB, server *pgserver.Server) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
}

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
	require.NoError(t, requireRejected(t, err, want).RecordErr)
	require.Equal(t, before, query[int64](t, r.pool, "select coalesce(sum(value), 0)::bigint from item"))
}

// A database whose volume was restored to an older state rejects a holder that has seen a
// newer one, with an error of its own and not as stale. It accepts no token lower than
// those it knows, nor another holder's equal one. Accepted holders go on from there, in a
// history that verifies.
func TestRestore_OfAnOlderVolumeIsNoticed(t *testing.T) {
	t.Parallel()
	r := newRestore(t)
	kept := write(t, r.store, claim(t, r.store, grant(5, "a")), set("x", 1))
	identity := "select system_identifier || ' ' || ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer from pg_control_system()"
	before := query[string](t, r.pool, identity)
	r.save(t)
	written := write(t, r.store, kept, set("x", 2))
	added := grant(7, "c")
	added.Resource = "sku/2"
	other := write(t, r.store, claim(t, r.store, added), set("y", 1))
	r.restore(t)
	require.Equal(t, before, query[string](t, r.pool, identity), "neither tells that anything happened")

	r.rejects(t, written, storage.ReasonWentBack)
	r.rejects(t, other, storage.ReasonWentBack)
	_, err := r.store.Claim(t.Context(), storage.Claim{Grant: grant(4, "z")})
	require.ErrorIs(t, err, storage.ErrStaleToken)
	_, err = r.store.Claim(t.Context(), storage.Claim{Grant: grant(5, "z")})
	requireRejected(t, err, storage.ReasonCollision)

	next := write(t, r.store, claim(t, r.store, grant(8, "a")), add("x", 1))
	r.rejects(t, written, storage.ReasonStale)
	write(t, r.store, next, add("x", 1))
	holds(t, r.pool, "x", 3)
	verifyChain(t, r.pool)
}

// The restore undoes the claim of a successor. The superseded holder finds the database
// exactly as it last saw it, position and transaction, and may go on: nothing of the
// successor's work is left. If it has seen one position more, it may not. The successor may
// not go on in either case, even if other moves have taken its positions again.
func TestRestore_ThatLostASuccessorsClaim(t *testing.T) {
	t.Parallel()
	for name, seenMore := range map[string]bool{"as it last saw it": false, "behind what it saw": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestore(t)
			old := write(t, r.store, claim(t, r.store, grant(5, "a")), set("x", 1))
			r.save(t)
			if seenMore {
				old = write(t, r.store, old, set("x", 2))
			}
			successor := write(t, r.store, claim(t, r.store, grant(6, "b")), set("x", 3))
			r.rejects(t, old, storage.ReasonStale)
			r.restore(t)

			r.rejects(t, successor, storage.ReasonWentBack)
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
