package memory_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/guardtest"
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

func TestStore_PassesTheContract(t *testing.T) {
	guardtest.TestStore(t, func(*testing.T) guardtest.Harness[*memory.Tx] {
		store := memory.NewStore()
		return guardtest.Harness[*memory.Tx]{
			Store: store,
			Get: func(_ context.Context, tx *memory.Tx, key string) (int64, error) {
				text, err := tx.Get(key)
				if err != nil || text == "" {
					return 0, err
				}
				return strconv.ParseInt(text, 10, 64)
			},
			Set: func(_ context.Context, tx *memory.Tx, key string, value int64) error {
				return tx.Set(key, strconv.FormatInt(value, 10))
			},
			Read: func(_ context.Context, key string) (int64, error) {
				text := store.Read(key)
				if text == "" {
					return 0, nil
				}
				return strconv.ParseInt(text, 10, 64)
			},
		}
	})
}
