package guard_test

import (
	"context"
	"errors"
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

// A process that doesn't own the resource reads while another one holds it, under no grant. Only where there is no fence
// yet does it take the lock.
func TestReadOnly_TakesNoLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var read guard.Operation
	a := w.process("a", releasing)
	b := w.process("b", &guard.Config{Observers: []*guard.Observer{{Finished: func(_ context.Context, o guard.Operation) { read = o }}}})
	var x, y string
	both := func(ctx context.Context, tx *memory.Tx) error {
		return errors.Join(reads("x", &x)(ctx, tx), reads("y", &y)(ctx, tx))
	}
	require.NoError(t, guard.Do(t.Context(), a, []string{sku, "y"}, set("y", "1")))
	require.NoError(t, guard.Hold(t.Context(), a, sku, func(ctx context.Context, h held) error {
		require.NoError(t, guard.Do(ctx, h, sku, set("x", "1")))
		err := guard.Do(t.Context(), b, []string{"y", sku}, func(ctx context.Context, tx *memory.Tx) error {
			require.Nil(t, guard.Grants(ctx))
			require.ErrorContains(t, guard.Do(ctx, b, sku, both), "the function runs under sku/42, y")
			return both(ctx, tx)
		}, guard.ReadOnly(), guard.Retryable())
		require.NoError(t, err)
		require.Equal(t, []string{"1", "1"}, []string{x, y})
		require.Nil(t, read.Grants)
		require.Equal(t, 1, read.Runs)
		return guard.Do(ctx, h, sku, set("x", "2"))
	}))
	require.Equal(t, []storage.EntryKind{"claim", "write", "claim", "write", "write"}, w.kinds())
	require.NoError(t, guard.Do(t.Context(), b, "new", both, guard.ReadOnly(), guard.Retryable()))
	require.Equal(t, w.locks.Holder("new"), read.Grants[0])
	require.NoError(t, b.Close(t.Context()))
	require.ErrorIs(t, guard.Do(t.Context(), b, sku, both, guard.ReadOnly(), guard.Retryable()), guard.ErrClosed)
}

// A read that another process's writes overtake runs again, whatever its function made of what it saw, and then takes the
// lock. Nobody's grant was rejected.
func TestReadOnly_OvertakenAgainAndAgainTakesTheLock(t *testing.T) {
	for _, want := range []error{nil, errShop} {
		w, g := newWorld(t), (*guard.Guard[*memory.Tx])(nil)
		g = w.process("a", nil)
		other := w.process("b", releasing)
		require.NoError(t, guard.Do(t.Context(), other, sku, increment("n")))
		runs := 0
		var first, second string
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, func(ctx context.Context, tx *memory.Tx) error {
			runs++
			require.NoError(t, reads("n", &first)(ctx, tx))
			if guard.Grants(ctx) == nil {
				require.NoError(t, guard.Do(t.Context(), other, sku, increment("n")))
			}
			require.NoError(t, reads("n", &second)(ctx, tx))
			if first != second {
				return errors.New("torn")
			}
			return want
		}, guard.ReadOnly(), guard.Retryable()), want)
		require.Equal(t, guard.LockFreeRuns+1, runs)
		require.Equal(t, first, second)
		rejections, err := w.store.Rejections(t.Context(), sku, 10)
		require.NoError(t, err)
		require.Empty(t, rejections)
		require.Equal(t, storage.KindClaim, w.kinds()[8])
	}
}

// What the process was told is unknown may still arrive: a claim rules it out.
func TestReadOnly_ClaimsWhileAnOutcomeIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", releasing)
		require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
		w.store.SetFaults(memory.Faults{Commit: fates(memory.Late), Resolve: func(storage.InDoubt) error { return errShop }})
		require.ErrorIs(t, guard.Do(t.Context(), g, sku, increment("n")), guard.ErrUnknownOutcome)
		w.store.SetFaults(memory.Faults{})
		var n string
		for range 2 {
			require.NoError(t, guard.Do(t.Context(), g, sku, reads("n", &n), guard.ReadOnly(), guard.Retryable()))
			require.Equal(t, "1", n)
		}
		require.ErrorIs(t, w.store.Deliver()[0], guard.ErrStaleToken)
		require.Equal(t, []storage.EntryKind{"claim", "write", "claim", "claim"}, w.kinds(), "the second read needed none")
	})
}

type blindStore struct{ *memory.Store }

func (blindStore) Look(context.Context, ...storage.Claim) ([]storage.Claim, error) {
	return nil, errShop
}

// What two reads have found in the same place is looked for there, and not looked at unless it has moved.
func TestReadOnly_GuessesThatNothingHasMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &struct{ storage.Store[*memory.Tx] }{w.store}
	g, other := w.on(s, nil), w.process("b", releasing)
	var n string
	for _, want := range []string{"1", "2"} {
		s.Store = w.store
		require.NoError(t, guard.Do(t.Context(), other, sku, increment("n")))
		for range 2 {
			require.NoError(t, guard.Do(t.Context(), g, sku, reads("n", &n), guard.ReadOnly(), guard.Retryable()))
		}
		s.Store = blindStore{w.store}
		require.NoError(t, guard.Do(t.Context(), g, sku, reads("n", &n), guard.ReadOnly(), guard.Retryable()))
		require.Equal(t, want, n)
	}
	require.NoError(t, guard.Do(t.Context(), other, sku, increment("n")))
	require.ErrorIs(t, guard.Do(t.Context(), g, sku, reads("n", &n), guard.ReadOnly(), guard.Retryable()), errShop)
}
