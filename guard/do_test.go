package guard_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func TestDo_RunsNothingBeforeTheClaimHasCommitted(t *testing.T) {
	w, g := newProcess(t)
	w.store.SetFaults(memory.Faults{Claim: func(fence.Grant) error { return errShop }})
	err := guard.Do(t.Context(), g, sku, func(context.Context, *memory.Tx) error {
		t.Error("ran without a claim")
		return nil
	})
	require.ErrorIs(t, err, errShop)

	w.store.SetFaults(memory.Faults{})
	require.NoError(t, guard.Do(t.Context(), g, sku, func(context.Context, *memory.Tx) error {
		require.Equal(t, []storage.EntryKind{storage.KindClaim}, w.kinds())
		return nil
	}))
	require.Equal(t, 1, w.locks.Grants(), "a failed claim is repeated under the same grant")
}

func TestDo_RepeatsAClaimWhoseReplyWasLost(t *testing.T) {
	w, g := newProcess(t)
	w.store.SetFaults(memory.Faults{ClaimReply: func(fence.Grant) error { return errShop }})
	require.ErrorIs(t, guard.Do(t.Context(), g, sku, set("k", "v")), errShop)
	w.store.SetFaults(memory.Faults{})
	require.NoError(t, guard.Do(t.Context(), g, sku, set("k", "v")))
	require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite}, w.kinds())
}

func TestDo_CancelledBeforeCommitRollsBack(t *testing.T) {
	w, g := newProcess(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	err := guard.Do(ctx, g, sku, func(_ context.Context, tx *memory.Tx) error {
		cancel(errShop)
		return tx.Set("k", "v")
	})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errShop)
	require.Empty(t, w.store.Read("k"))
	require.Equal(t, []storage.EntryKind{storage.KindClaim}, w.kinds())
}

func TestDo_CancellationDuringCommitHasNoEffect(t *testing.T) {
	w, g := newProcess(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.store.SetFaults(memory.Faults{Commit: func(storage.InDoubt) memory.Fate {
		cancel()
		return memory.ReplyLost
	}})
	require.NoError(t, guard.Do(ctx, g, sku, set("k", "v")))
	require.Equal(t, "v", w.store.Read("k"))
	w.store.SetFaults(memory.Faults{})
	require.NoError(t, guard.Do(t.Context(), g, sku, set("k", "w")), "at the position that it left")
}

func explode() { panic("boom") }

func TestValue_ReturnsZeroWithAnError(t *testing.T) {
	w, g := newProcess(t)
	seven := func(context.Context, *memory.Tx) (int, error) { return 7, nil }
	got, err := guard.Value(t.Context(), g, sku, seven)
	require.NoError(t, err)
	require.Equal(t, 7, got)
	got, err = guard.Value(t.Context(), g, sku, func(context.Context, *memory.Tx) (int, error) { return 7, errShop })
	require.ErrorIs(t, err, errShop)
	require.Zero(t, got)
	w.store.SetFaults(memory.Faults{Commit: func(storage.InDoubt) memory.Fate { return memory.RequestLost }})
	got, err = guard.Value(t.Context(), g, sku, seven)
	require.ErrorIs(t, err, memory.ErrReplyLost)
	require.Zero(t, got)
}

func TestCalls_RejectBadArguments(t *testing.T) {
	w, g := newProcess(t)
	ctx := t.Context()
	grant := fence.Grant{Resource: sku, Epoch: 1, Token: 1, Holder: "h"}
	long := strings.Repeat("x", 513)
	var many []guard.Option
	for i := range 17 {
		many = append(many, guard.OpAttr(string(rune('a'+i)), ""))
	}
	require.ErrorIs(t, guard.Do(ctx, g, sku, nil), guard.ErrInvalid)
	require.ErrorIs(t, guard.Do(ctx, nil, sku, set("k", "v")), guard.ErrInvalid)
	require.ErrorIs(t, guard.Exec(ctx, g, sku, nil), guard.ErrInvalid)
	require.ErrorIs(t, guard.Exec(ctx, g, sku, storage.Func[*memory.Tx](nil)), guard.ErrInvalid)
	require.ErrorIs(t, guard.Hold(ctx, g, sku, nil), guard.ErrInvalid)
	_, err := guard.Value[*memory.Tx, int](ctx, g, sku, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorIs(t, doUnderGrant(ctx, w.store, grant, nil), guard.ErrInvalid)
	require.ErrorIs(t, doUnderGrant(ctx, nil, grant, set("k", "v")), guard.ErrInvalid)
	require.ErrorAs(t, doUnderGrant(ctx, w.store, fence.Grant{Resource: sku}, set("k", "v")), new(*fence.InvalidGrantError))
	for name, reason := range map[string]string{"": "is empty", "a\n": "contains a control character", long: "has 513 bytes, at most 512 are allowed"} {
		for _, err := range []error{
			guard.Do(ctx, g, name, set("k", "v")),
			guard.Do(ctx, g, []string{"b", name}, set("k", "v")),
			guard.Hold(ctx, g, name, func(context.Context, held) error { return nil }),
		} {
			require.ErrorIs(t, err, guard.ErrInvalid)
			require.EqualError(t, err, "fence: invalid argument: resource name "+reason)
		}
	}
	for option, twice := range map[string][]guard.ValueOption{
		"Once":       {guard.Once("a", nil), guard.Once("b", nil)},
		"OpID":       {guard.OpID("a"), guard.OpID("b")},
		"OpName":     {guard.OpName("a"), guard.OpName("b")},
		`OpAttr "k"`: {guard.OpAttr("k", "v"), guard.OpAttr("k", "w")},
		"Receipt":    {guard.Receipt(new(storage.Receipt)), guard.Receipt(new(storage.Receipt))},
	} {
		err := doOnce(ctx, g, sku, set("k", "v"), twice...)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.EqualError(t, err, "fence: invalid argument: "+option+" was given twice")
	}
	for _, opts := range [][]guard.Option{
		{guard.OpID("")}, {guard.OpID(long)}, {guard.OpID("\xff")}, {guard.OpID("a\x00")},
		{guard.OpName("")}, {guard.OpName(long)}, {nil}, many,
		{guard.OpAttr("", "v")}, {guard.OpAttr(long, "v")}, {guard.OpAttr("k", long)}, {guard.OpAttr("k", "\xff")},
		{guard.Receipt(nil)}, {guard.Receipt(new(storage.Receipt)), guard.ReadOnly()},
	} {
		require.ErrorIs(t, guard.Do(ctx, g, sku, set("k", "v"), opts...), guard.ErrInvalid)
	}
	require.Empty(t, w.kinds())
	require.Zero(t, w.locks.Grants())

	store := memory.NewStore()
	_, err = guard.New[*memory.Tx](guardtest.NewLocker(), nil, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	var noStore *memory.Store
	_, err = guard.New(guardtest.NewLocker(), noStore, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	var noLocker *guardtest.Locker
	_, err = guard.New(noLocker, store, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorIs(t, doUnderGrant(t.Context(), noStore, grant, set("k", "v")), guard.ErrInvalid)
	for _, cfg := range []guard.Config{{MaxRun: -1}, {StoreTimeout: -1}, {ResolveTimeout: -1}} {
		_, err = guard.New(guardtest.NewLocker(), store, &cfg)
		require.ErrorIs(t, err, guard.ErrInvalid)
	}
}
