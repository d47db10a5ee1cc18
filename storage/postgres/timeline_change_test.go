package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
)

// failOver makes a server a standby that has received everything, and promotes it:
// it goes on with the same data on the next timeline.
func failOver(t *testing.T, server *pgserver.Server, pool *pgxpool.Pool) {
	t.Helper()
	before := query[int](t, pool, "select ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer")
	mustExec(t, pool, "copy (select) to '"+query[string](t, pool, "select current_setting('data_directory')")+"/standby.signal'")
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool { // connections of before the crash fail once
		_, err := pool.Exec(t.Context(), "select pg_promote()")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	eventually(t, pool, "select not pg_is_in_recovery()")
	require.Equal(t, before+1, query[int](t, pool, "select ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::integer"))
}

// A grant that was claimed before the database failed over is rejected, at the begin check
// and at a repeated claim, even if its fence hasn't moved: data that was read under it may
// be gone. The next grant starts afresh.
func TestFailover_EndsTheGrantsOfBefore(t *testing.T) {
	t.Parallel()
	server, dsn := startServer(t, nil)
	pool := openPool(t, dsn)
	store := newStore(t, pool, nil)
	key := storage.OnceKey{Key: "k"}
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	moved, err := txn.Commit(t.Context(), keeping(key, nil))
	require.NoError(t, err)
	kept := moved[0]
	other := grant(5, "b")
	other.Resource = "sku/2"
	late := claim(t, store, other)
	failOver(t, server, pool)

	_, err = attempt(t.Context(), store, set("x", 2), kept)
	requireFailedOver(t, err, storage.StageBegin)
	_, _, err = store.Recall(t.Context(), key, kept)
	requireFailedOver(t, err, storage.StageBegin)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: late.Grant})
	requireFailedOver(t, err, storage.StageClaim)
	rejections, err := store.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
	require.Len(t, rejections, 1)
	require.Equal(t, storage.ReasonFailedOver, rejections[0].Reason)
	holds(t, pool, "x", 1)

	_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(4, "a")})
	require.ErrorIs(t, err, storage.ErrStaleToken, "after a failover an older grant is still stale")
	c := write(t, store, claim(t, store, grant(6, "c")), add("x", 1))
	write(t, store, c, add("x", 1))
	holds(t, pool, "x", 3)
	verifyChain(t, pool)
	require.Equal(t, []int64{1, 1, 2, 2, 2}, collect[int64](t, pool, "select c.timeline from fence.history e join fence.history c on c.resource = e.resource and c.seq = e.claim where e.resource = $1 order by e.seq", c.Resource))
}

func requireFailedOver(t *testing.T, err error, stage storage.Stage) {
	t.Helper()
	requireRejected(t, err, storage.ReasonFailedOver)
	var rejection *storage.RejectedError
	require.ErrorAs(t, err, &rejection)
	require.Equal(t, stage, rejection.Stage)
	require.NoError(t, rejection.RecordErr)
	require.False(t, rejection.Since.IsZero())
}

// A transaction whose connection breaks without a word before its seal is sent can't know
// that COMMIT never arrived: it is resolved on the new timeline. A proxy cuts the connection,
// since a server that loses its postmaster may still say so.
func TestFailover_BeforeTheSealIsInDoubt(t *testing.T) {
	t.Parallel()
	server, dsn := startServer(t, nil)
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	store := newStore(t, openPool(t, proxy.DSN()), nil)
	txn := begin(t, store, claim(t, store, grant(5, "a")))
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	require.NoError(t, proxy.Close())
	pool := openPool(t, dsn)
	failOver(t, server, pool)
	_, err = txn.Commit(t.Context(), nil)
	var doubt *storage.InDoubtError
	require.ErrorAs(t, err, &doubt)
	applied, err := newStore(t, pool, nil).Resolve(t.Context(), doubt.InDoubt)
	require.NoError(t, err)
	require.False(t, applied)
	holds(t, pool, "x", 0)
}
