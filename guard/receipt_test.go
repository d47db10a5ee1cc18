package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// receiptOf is what the history says of the last entries of resources.
func (w *world) receiptOf(resources ...string) (r storage.Receipt) {
	w.Helper()
	for _, resource := range resources {
		entries, err := w.store.Entries(context.Background(), resource, 0, 1000)
		require.NoError(w, err)
		e := entries[len(entries)-1]
		require.Equal(w, storage.KindWrite, e.Kind)
		r = append(r, storage.ReceiptEntry{Grant: e.Grant, Position: e.Position, Hash: [32]byte(e.Hash)})
	}
	return r
}

func TestReceipt_NamesTheEntriesOfTheOperation(t *testing.T) {
	w, g := newProcess(t)
	var r storage.Receipt
	require.NoError(t, guard.Do(t.Context(), g, sku, increment("n"), guard.Receipt(&r)))
	require.Equal(t, w.receiptOf(sku), r)
	require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
	require.NotEqual(t, w.receiptOf(sku), r)
	require.NoError(t, guard.Do(t.Context(), g, []string{"b", "a"}, increment("n"), guard.Receipt(&r)))
	require.Equal(t, w.receiptOf("a", "b"), r)
	require.NoError(t, guard.Hold(t.Context(), g, []string{"b", "a"}, func(ctx context.Context, h held) error {
		for range 2 {
			require.NoError(t, guard.Do(ctx, h, "b", increment("n"), guard.Receipt(&r)))
			require.Equal(t, w.receiptOf("a", "b"), r, "the Hold seals both")
		}
		return nil
	}))
	_, err := guard.Value(t.Context(), g, sku, counted, guard.Once("k", nil), guard.Receipt(&r))
	require.NoError(t, err)
	require.Equal(t, w.receiptOf(sku), r)
}

func TestReceipt_IsNilUnlessTheCallSawTheCommit(t *testing.T) {
	w, g := newProcess(t)
	old := storage.Receipt{{}}
	r := old
	require.Same(t, errShop, guard.Do(t.Context(), g, sku, func(context.Context, *memory.Tx) error { return errShop }, guard.Receipt(&r)))
	require.Nil(t, r)
	for range 2 {
		r = old
		_, err := guard.Value(t.Context(), g, sku, counted, guard.Once("k", nil), guard.Receipt(&r))
		require.NoError(t, err)
	}
	require.Nil(t, r, "the answer is an earlier call's")
	w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost)})
	r = old
	require.NoError(t, guard.Do(t.Context(), g, sku, increment("n"), guard.Receipt(&r)))
	require.Nil(t, r, "nobody has told the hash")
	w.store.SetFaults(memory.Faults{Commit: fates(memory.RequestLost)})
	require.NoError(t, guard.Do(t.Context(), g, sku, increment("n"), guard.Receipt(&r), guard.Retryable()))
	require.Equal(t, w.receiptOf(sku), r, "of the run that took effect")
}

func TestReceipt_OfCallsThatShareATransaction(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, b *batches) {
		var r [2]storage.Receipt
		one := func(i int) call { return b.named(sku, "x", put("k", "x"), guard.Receipt(&r[i])) }
		for _, err := range b.meet(one(0), one(1), b.adds("a")) {
			require.NoError(t, err)
		}
		require.Equal(t, b.receiptOf(sku), r[0])
		require.Equal(t, r[0], r[1])
	})
}
