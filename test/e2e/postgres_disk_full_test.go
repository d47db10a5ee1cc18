package e2e_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// full is a size of files that leaves room for the segments of the log alone, and
// for half a page more than whole ones.
const full = 16<<20 + 4096

func requireDiskFull(t *testing.T, err error) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "53100", pgErr.Code)
	require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
}

// A guarded write that finds Postgres's disk full fails with the server's own words,
// whether it is the user's table or the history that can't grow; nothing is lost,
// and what needs no room goes on.
func TestDiskFull_FailsTheWriteAlone(t *testing.T) {
	t.Parallel()
	server, dsn, pool := ownPostgres(t, "a")
	// One claim alone: the history's entries are counted in the end.
	p := newProcess(t, etcdserver.Shared(t).Endpoint(), dsn, etcd.Config{TTL: 10 * time.Minute}, &guard.Config{KeepFor: time.Hour})
	ctx := patiently(t)
	fill := func(ctx context.Context, tx pgx.Tx) error {
		if err := increment("a")(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into ballast select repeat('x', 1500) from generate_series(1, 12000)")
		return err
	}
	require.NoError(t, server.LimitFiles(ctx, full))
	requireDiskFull(t, guard.Do(ctx, p.Guard, "a", fill))
	require.NoError(t, guard.Do(ctx, p.Guard, "a", increment("a")), "others have room")
	require.EqualValues(t, 1, value(t, pool, "a"))

	fillHistory(t, pool)
	written := int64(1)
	err := guard.Do(ctx, p.Guard, "a", increment("a"))
	for ; err == nil; written++ { // in what was left of the page that it has written to last
		require.Less(t, written, int64(100), "the history doesn't get full")
		err = guard.Do(ctx, p.Guard, "a", increment("a"))
	}
	requireDiskFull(t, err)
	requireDiskFull(t, guard.Do(ctx, p.Guard, "a", increment("a")))
	require.Equal(t, written, value(t, pool, "a"))

	require.NoError(t, server.UnlimitFiles(ctx))
	require.NoError(t, guard.Do(ctx, p.Guard, "a", fill))
	require.NoError(t, guard.Do(ctx, p.Guard, "a", increment("a")))
	require.Equal(t, written+2, value(t, pool, "a"))
	entries, err := p.store.Entries(ctx, "a", 0, 1000)
	require.NoError(t, err)
	require.Len(t, entries, int(written)+3)
}

// fillHistory inserts entries of another resource while there is room. Four of them
// fill a page so far that no other fits.
func fillHistory(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "alter table fence.history set (autovacuum_enabled = off)") // it would make room
	require.NoError(t, err)
	for n := 0; err == nil; n += 1000 {
		_, err = pool.Exec(t.Context(), `insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash)
			select 1, 'w', n, 1, 1, '1', now(), convert_to(repeat('x', 1940), 'UTF8') from generate_series($1::int + 1, $1 + 1000) n`, n)
		require.Less(t, n, 50_000, "the history doesn't get full")
	}
	requireDiskFull(t, err)
}

// When Postgres can't write its log it ends, in the midst of a COMMIT. What that
// became is settled when it is back with room; what was acknowledged is there.
func TestDiskFull_OfTheLogLeavesNoDoubt(t *testing.T) {
	t.Parallel()
	server, dsn, pool := ownPostgres(t, "a")
	p := newProcess(t, etcdserver.Shared(t).Endpoint(), dsn, etcd.Config{}, &guard.Config{
		StoreTimeout: 5 * time.Second, ResolveTimeout: time.Second,
	})
	ctx := patiently(t)
	require.NoError(t, p.pool.Ping(ctx)) // a first connection may take all of the timeout
	require.NoError(t, guard.Do(ctx, p.Guard, "a", increment("a")))
	want := int64(1)
	require.NoError(t, server.LimitFiles(ctx, 4096))
	err := guard.Do(ctx, p.Guard, "a", increment("a"))
	require.Error(t, err)
	require.Error(t, guard.Do(ctx, p.Guard, "a", increment("a")), "it is down")

	require.NoError(t, server.Restart(ctx))
	var unknown *guard.UnknownOutcomeError
	if errors.As(err, &unknown) {
		var applied bool
		require.Eventually(t, func() bool {
			applied, err = unknown.Resolve(ctx)
			return err == nil
		}, time.Minute, 10*time.Millisecond)
		if applied {
			want++
		}
	}
	require.Eventually(t, func() bool { return pool.Ping(ctx) == nil }, time.Minute, 10*time.Millisecond)
	require.Equal(t, want, value(t, pool, "a"))
	require.Eventually(t, func() bool { return guard.Do(ctx, p.Guard, "a", increment("a")) == nil }, time.Minute, 10*time.Millisecond)
	require.Equal(t, want+1, value(t, pool, "a"))
}
