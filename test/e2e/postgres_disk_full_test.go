package e2e_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func requireDiskFull(t *testing.T, err error) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "Check free disk space.", pgErr.Hint, err)
	require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
}

// A guarded write that finds Postgres's disk full fails with the server's own words, whether the user's table or the
// history can't grow. Nothing is lost, and what needs no room goes on.
func TestDiskFull_FailsTheWriteAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server, err := pgserver.Start(ctx, &pgserver.Config{Local: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	pool := migrateCounters(t, server.DSN(), "a")
	_, err = pool.Exec(ctx, "create table ballast (value text); alter table fence.history set (autovacuum_enabled = off)") // it would make room
	require.NoError(t, err)
	p := newProcess(t, etcdserver.Shared(t).Endpoint(), server.DSN(), etcd.Config{TTL: 10 * time.Minute}, &guard.Config{KeepFor: time.Hour})
	fill := func(ctx context.Context, tx pgx.Tx) error {
		if err := increment("a")(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into ballast select repeat('x', 1500) from generate_series(1, 12000)")
		return err
	}
	require.NoError(t, guard.Do(ctx, p.Guard, "a", increment("a")))
	require.NoError(t, server.LimitFiles(strconv.Itoa(16<<20+4096))) // room for segments of the log, and half a page
	requireDiskFull(t, guard.Do(ctx, p.Guard, "a", fill))
	require.NoError(t, guard.Do(ctx, p.Guard, "a", increment("a")), "others have room")
	require.EqualValues(t, 2, value(t, pool, "a"))

	fillHistory(t, pool)
	written := int64(2)
	for err = nil; err == nil; written++ { // in what is left of the page that was written to last
		require.Less(t, written, int64(100), "the history doesn't get full")
		err = guard.Do(ctx, p.Guard, "a", increment("a"))
	}
	written--
	requireDiskFull(t, err)
	require.Equal(t, written, value(t, pool, "a"))

	require.NoError(t, server.LimitFiles("unlimited"))
	require.NoError(t, guard.Do(ctx, p.Guard, "a", fill))
	require.Equal(t, written+1, value(t, pool, "a"))
}

// fillHistory inserts entries of another resource while there is room. Four of them fill a page so far that no other
// fits.
func fillHistory(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var err error
	for n := 0; err == nil; n += 1000 {
		require.Less(t, n, 50_000, "the history doesn't get full")
		_, err = pool.Exec(t.Context(), `insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash)
			select 99, 'w', n, 1, 1, '1', now(), convert_to(repeat('x', 1940), 'UTF8') from generate_series($1::int + 1, $1 + 1000) n`, n)
	}
	requireDiskFull(t, err)
}
