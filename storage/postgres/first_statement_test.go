package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The wait for a silent server in the middle of a transaction is bounded for a batch, too.
func TestBatch_InTheMiddleOnASilentServer(t *testing.T) {
	t.Parallel()
	_, proxy, _, direct := behindPooler(t)
	pool := openPool(t, proxy.DSN(), single)
	const limit = 2 * time.Second
	store := newStore(t, pool, &postgres.Config{LockTimeout: limit, StatementTimeout: limit, NetworkTimeout: 4 * limit, CleanupTimeout: limit}) // the transaction has to begin within 5 of them
	txn := begin(t, store, claim(t, direct, grant(5, "a")))
	b, _ := batchOf(insertItem, "x", 1)
	require.NoError(t, txn.Run(t.Context(), b))
	proxy.Pause(pgproxy.ToServer)
	t.Cleanup(func() { proxy.Resume(pgproxy.ToServer) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := txn.Run(ctx, statement("select 1"))
	require.ErrorIs(t, err, storage.ErrStoreUnavailable)
	require.ErrorContains(t, err, "no answer within")
	require.NoError(t, ctx.Err())
}
