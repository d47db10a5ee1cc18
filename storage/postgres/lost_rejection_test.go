package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/storage"
)

// The server rejects a seal, and its answer is lost: the rejection is recorded when
// the outcome is resolved.
func TestResolve_RecordsTheRejectionWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	old := claim(t, f.store, grant(5, "a"))
	txn := begin(t, f.store, old)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	claimOnly(t, f.pool, grant(6, "b"))
	lost := pgproxy.SwallowReply()
	f.proxy.OnCommit(func(string) *pgproxy.Action { return lost })
	_, err := txn.Commit(t.Context(), nil)
	f.proxy.OnCommit(nil)
	var doubt *storage.InDoubtError
	require.ErrorAs(t, err, &doubt)

	applied, err := f.store.Resolve(t.Context(), doubt.InDoubt)
	require.NoError(t, err)
	require.False(t, applied)
	rejections, err := f.store.Rejections(t.Context(), resource, 10)
	require.NoError(t, err)
	require.Len(t, rejections, 1)
	require.Equal(t, storage.ReasonStale, rejections[0].Reason)
	require.Equal(t, grant(5, "a"), rejections[0].Grant)
	require.Equal(t, grant(6, "b"), rejections[0].Current)
}
