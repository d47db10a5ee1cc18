package memory_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/memory"
)

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
