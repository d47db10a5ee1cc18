package memory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

const sku = "sku/42"

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: sku, Epoch: 1, Token: token, Holder: "h-" + token.String()}
}

func claim(t *testing.T, s *memory.Store, seq int64) storage.Claim {
	t.Helper()
	claims, err := s.Claim(t.Context(), storage.Claim{Grant: grant(1)})
	require.NoError(t, err)
	require.Equal(t, seq, claims[0].Seq)
	return claims[0]
}

func TestTx_IsUnusableOnceItsOperationHasReturned(t *testing.T) {
	t.Parallel()
	s := memory.NewStore()
	c := claim(t, s, 1)
	txn, err := s.Begin(t.Context(), c)
	require.NoError(t, err)
	var kept *memory.Tx
	require.NoError(t, txn.Run(t.Context(), storage.Func[*memory.Tx](func(_ context.Context, tx *memory.Tx) error {
		kept = tx
		require.NoError(t, tx.Set("k", "v"))
		require.NoError(t, tx.Set("k", ""))
		got, err := tx.Get("k")
		require.Empty(t, got)
		return err
	})))
	_, err = kept.Get("k")
	require.ErrorIs(t, err, storage.ErrTxEnded)
	require.ErrorIs(t, kept.Set("k", "late"), storage.ErrTxEnded)
	_, err = txn.Commit(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, s.Read("k"))
}
