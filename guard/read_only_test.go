package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func reads(key string, value *string) func(context.Context, *memory.Tx) error {
	return func(_ context.Context, tx *memory.Tx) (err error) {
		*value, err = tx.Get(key)
		return err
	}
}

func TestReadOnly_MovesNothingUnderAnyRunner(t *testing.T) {
	w, g := newProcess(t)
	require.NoError(t, guard.Do(t.Context(), g, sku, set("n", "1")))
	lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), "leader")
	require.NoError(t, err)
	require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
		var n string
		require.NoError(t, guard.Do(ctx, h, sku, reads("n", &n), guard.ReadOnly()))
		require.Equal(t, "1", n)
		require.NoError(t, guard.Do(t.Context(), g.UnderGrant(guard.Grants(ctx)...), sku, reads("n", &n), guard.ReadOnly()))
		return guard.Do(ctx, h, sku, increment("n"))
	}))
	n, err := guard.Value(t.Context(), g, sku, func(_ context.Context, tx *memory.Tx) (string, error) { return tx.Get("n") }, guard.ReadOnly())
	require.NoError(t, err)
	require.Equal(t, "2", n)
	require.NoError(t, guard.Do(t.Context(), g.UnderLease(lease), "leader", reads("n", &n), guard.ReadOnly()))
	require.Equal(t, []storage.EntryKind{"claim", "write", "write"}, w.kinds())
	require.Error(t, guard.Do(t.Context(), g, sku, increment("n"), guard.ReadOnly()))
	require.Equal(t, "2", w.store.Read("n"))
}

// Another transaction of the grant commits between two reads. With Retryable the function runs
// again, and reads all of it at one position.
func TestReadOnly_RunsAgainAfterItWasOvertaken(t *testing.T) {
	w, g := newProcess(t)
	runs := 0
	var first, second string
	torn := func(ctx context.Context, tx *memory.Tx) error {
		runs++
		require.NoError(t, reads("n", &first)(ctx, tx))
		if runs == 1 {
			require.NoError(t, doUnderGrant(t.Context(), w.store, guard.Grants(ctx)[0], increment("n")))
		}
		return reads("n", &second)(ctx, tx)
	}
	require.NoError(t, guard.Do(t.Context(), g, sku, torn, guard.ReadOnly(), guard.Retryable()))
	require.Equal(t, 2, runs)
	require.Equal(t, []string{"1", "1"}, []string{first, second})
	runs = 0
	require.ErrorIs(t, guard.Do(t.Context(), g, sku, torn, guard.ReadOnly()), guard.ErrOvertaken)
}

func TestReadOnly_RejectedEndsTheHold(t *testing.T) {
	w, g := newProcess(t)
	var n string
	require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
		require.NoError(t, guard.Do(ctx, h, sku, reads("n", &n), guard.ReadOnly()))
		require.NoError(t, doUnderGrant(ctx, w.store, guard.Grants(ctx)[0], increment("n")))
		for _, opts := range [][]guard.Option{{guard.ReadOnly()}, {guard.ReadOnly(), guard.Retryable()}, nil} {
			err := guard.Do(ctx, h, sku, reads("n", &n), opts...)
			require.ErrorIs(t, err, guard.ErrOvertaken)
			require.ErrorContains(t, err, "this Hold is over")
		}
		return nil
	}))
	require.Equal(t, []storage.EntryKind{"claim", "write"}, w.kinds())
}

// Without an answer nothing is in doubt: the positions are what they were, and a Hold goes on.
func TestReadOnly_WithoutAnAnswerIsSafeToRetry(t *testing.T) {
	t.Parallel()
	for _, fate := range []memory.Fate{memory.ReplyLost, memory.RequestLost, memory.Late} {
		w := newWorld(t)
		g := w.process("a", nil)
		var n string
		require.NoError(t, guard.Hold(t.Context(), g, sku, func(ctx context.Context, h held) error {
			require.NoError(t, guard.Do(ctx, h, sku, increment("n")))
			w.store.SetFaults(memory.Faults{Commit: fates(fate, fate)})
			err := guard.Do(ctx, h, sku, reads("n", &n), guard.ReadOnly())
			require.ErrorIs(t, err, memory.ErrReplyLost)
			require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
			require.True(t, guard.SafeToRetry(err))
			require.NoError(t, guard.Do(ctx, h, sku, reads("n", &n), guard.ReadOnly(), guard.Retryable()))
			return guard.Do(ctx, h, sku, increment("n"))
		}))
		require.Empty(t, w.store.Deliver())
		require.Equal(t, []storage.EntryKind{"claim", "write", "write"}, w.kinds())
	}
}
