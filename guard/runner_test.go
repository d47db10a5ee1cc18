package guard_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

var both = []string{"y", "x"}

func (w *world) writes(resource string) (n int) {
	w.Helper()
	entries, err := w.store.Entries(context.Background(), resource, 0, 1000)
	require.NoError(w, err)
	for _, e := range entries {
		if e.Kind == storage.KindWrite {
			n++
		}
	}
	return n
}

func TestHold_OfSeveralOneStaleRejectsAll(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.process("a", nil), w.process("b", nil)
		err := guard.Hold(t.Context(), a, both, func(ctx context.Context, h held) error {
			require.Len(t, guard.Grants(ctx), 2)
			require.NoError(t, guard.Do(ctx, h, both, increment("n")))
			w.locks.Lose("y")
			require.NoError(t, guard.Do(t.Context(), b, "y", increment("n")))
			for range 2 { // x alone is as it was
				err := guard.Do(context.WithoutCancel(t.Context()), h, "x", set("n", "9"), guard.Retryable())
				require.ErrorIs(t, err, guard.ErrStaleToken)
				require.ErrorContains(t, err, "guard: x, y: what was read may be out of date: this Hold is over, begin it again: guard: y: token")
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "2", w.store.Read("n"))
		require.Equal(t, 1, w.writes("x"))
		require.NoError(t, guard.Do(t.Context(), a, both, increment("n")))
	})
}

// A Hold that may run again begins with what its earlier runs, and others, have committed.
func TestHold_RetryableRunsAllOfItAgain(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(t *testing.T, w *world, grants []fence.Grant){
		"stale": func(t *testing.T, w *world, _ []fence.Grant) {
			w.locks.Lose("y")
			require.NoError(t, guard.Do(t.Context(), w.process("b", nil), "y", increment("n")))
		},
		"overtaken": func(t *testing.T, w *world, grants []fence.Grant) {
			require.NoError(t, doUnderGrant(t.Context(), w.store, grants[0], increment("n")))
		},
		"unknown": func(t *testing.T, w *world, _ []fence.Grant) {
			failing := true
			w.store.SetFaults(memory.Faults{Commit: fates(memory.RequestLost), Resolve: func(storage.InDoubt) error {
				if failing {
					failing = false
					return errShop
				}
				return nil
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				g := w.process("a", &guard.Config{ResolveTimeout: time.Millisecond})
				runs := 0
				require.NoError(t, guard.Hold(t.Context(), g, both, func(ctx context.Context, h held) error {
					runs++
					read, err := guard.Value(ctx, h, "x", func(_ context.Context, tx *memory.Tx) (int, error) { return number(tx.Get("n")) })
					if err != nil {
						return err
					}
					if runs == 1 {
						trouble(t, w, guard.Grants(ctx))
					}
					return guard.Do(context.WithoutCancel(ctx), h, "y", set("n", fmt.Sprint(read+1)))
				}, guard.Retryable()))
				require.Greater(t, runs, 1)
				want := map[string]string{"stale": "2", "overtaken": "2", "unknown": "1"}[name]
				require.Equal(t, want, w.store.Read("n"))
			})
		})
	}
}

func TestHold_RetryableSaysWhatAnEarlierRunLeftUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.store.SetFaults(memory.Faults{Commit: fates(memory.RequestLost), Resolve: func(storage.InDoubt) error { return errShop }})
		runs := 0
		err := guard.Hold(t.Context(), w.process("a", &guard.Config{ResolveTimeout: time.Millisecond}), sku, func(ctx context.Context, h held) error {
			runs++
			return guard.Do(ctx, h, sku, increment("n"))
		}, guard.Retryable())
		require.Equal(t, 1, runs)
		require.ErrorIs(t, err, guard.ErrUnknownOutcome)
		require.ErrorContains(t, err, "an earlier operation is unresolved: memory: resolve: out of stock (in an earlier run: guard: sku/42: outcome of COMMIT is unknown")
		w.store.SetFaults(memory.Faults{})
	})
}

// A key is that of the resource that is named: with another one of the same Hold it
// names another operation, which is not taken for done.
func TestOnce_InAHoldOfSeveralIsForTheResourceNamed(t *testing.T) {
	w, g := newProcess(t)
	once := guard.Once("k", nil)
	for range 2 {
		require.NoError(t, guard.Hold(t.Context(), g, both, func(ctx context.Context, h held) error {
			require.NoError(t, doOnce(ctx, h, "x", increment("n"), once))
			require.ErrorIs(t, doOnce(ctx, h, "y", increment("n"), once), guard.ErrKeyReused)
			return nil
		}))
	}
	require.ErrorIs(t, doOnce(t.Context(), g, "x", increment("n"), once), guard.ErrKeyReused)
	require.Equal(t, "1", w.store.Read("n"))
}

func TestUnderGrant_IsObservedAndEndsWithTheGuard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var finished []guard.Operation
		g := w.processWith(nil, w.store, &guard.Config{MaxRun: time.Second, Observers: []*guard.Observer{{Finished: func(_ context.Context, f guard.Operation) { finished = append(finished, f) }}}})
		hangs := func(ctx context.Context, _ *memory.Tx) error { <-ctx.Done(); return context.Cause(ctx) }
		err := guard.Do(t.Context(), g.UnderGrant(grant(1)), sku, hangs)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "function ran for too long (Config.MaxRun is 1s)")
		require.Len(t, finished, 1)
		require.Equal(t, []fence.Grant{grant(1)}, finished[0].Grants)
		require.Equal(t, guard.OutcomeFailed, finished[0].Outcome)

		running := make(chan error, 1)
		go func() { running <- guard.Do(t.Context(), g.UnderGrant(grant(1)), sku, hangs) }()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, g.Close(over))
		require.ErrorIs(t, <-running, guard.ErrClosed)
		require.ErrorIs(t, guard.Do(t.Context(), g.UnderGrant(grant(1)), sku, set("k", "v")), guard.ErrClosed)
	})
}

func TestCalls_MisuseSaysWhatToUse(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		receiver := w.processWith(nil, w.store, nil)
		lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), "lead")
		require.NoError(t, err)
		ctx, write := t.Context(), set("k", "v")
		hold := func(fn func(ctx context.Context, h held) error) error { return guard.Hold(ctx, g, sku, fn) }
		other := grant(1)
		other.Resource = "other"
		for name, c := range map[string]struct {
			err  error
			says string
		}{
			"nil Runner":         {guard.Do(ctx, guard.Runner[*memory.Tx](nil), sku, write), "nil Guard or Runner"},
			"zero Guard":         {guard.Do(ctx, new(guard.Guard[*memory.Tx]), sku, write), "nil Guard or Runner"},
			"zero receiver":      {guard.Do(ctx, new(guard.Guard[*memory.Tx]).UnderGrant(other), "other", write), "nil Guard or Runner"},
			"nil option":         {guard.Do(ctx, g, sku, write, nil), "nil Option"},
			"no resource":        {guard.Do(ctx, g, []string(nil), write), "0 resources, want 1 to 100"},
			"too many resources": {guard.Do(ctx, g, make([]string, 101), write), "101 resources, want 1 to 100"},
			"a resource twice":   {guard.Do(ctx, g, []string{"a", "b", "a"}, write), `"a" is named twice`},
			"call in a Hold's function": {hold(func(ctx context.Context, h held) error {
				return guard.Do(ctx, h, sku, func(ctx context.Context, _ *memory.Tx) error { return guard.Do(ctx, h, sku, write) })
			}), "use the function's own transaction"},
			"call in a function":     {guard.Do(ctx, g, sku, func(ctx context.Context, _ *memory.Tx) error { return guard.Do(ctx, g, sku, write) }), "use the function's own transaction"},
			"another resource in it": {guard.Do(ctx, g, sku, func(ctx context.Context, _ *memory.Tx) error { return guard.Do(ctx, g, "b", write) }), "name b beside it in one call"},
			"a grant in it": {guard.Do(ctx, g, sku, func(ctx context.Context, _ *memory.Tx) error {
				return guard.Do(ctx, g.UnderGrant(other), "other", write)
			}), "name other beside it in one call"},
			"the Guard in a Hold":         {hold(func(ctx context.Context, _ held) error { return guard.Do(ctx, g, sku, write) }), "use the Hold's Runner"},
			"another resource in a Hold":  {hold(func(ctx context.Context, _ held) error { return guard.Do(ctx, g, "b", write) }), "name b beside it in one Hold"},
			"a resource that is not held": {hold(func(ctx context.Context, h held) error { return guard.Do(ctx, h, "b", write) }), "this is a Hold of sku/42: name b beside it in one Hold"},
			"a Hold in a Hold": {hold(func(ctx context.Context, h held) error {
				return guard.Hold(ctx, h, sku, func(context.Context, held) error { return nil })
			}), "name all resources in one Hold"},
			"no lock service":             {guard.Do(ctx, receiver, sku, write), "use UnderGrant or UnderLease"},
			"no lock service, Hold":       {guard.Hold(ctx, receiver, sku, func(context.Context, held) error { return nil }), "use UnderGrant or UnderLease"},
			"no lease":                    {guard.Do(ctx, g.UnderLease(), sku, write), "UnderLease without a lease"},
			"nil lease":                   {guard.Do(ctx, g.UnderLease(nil), sku, write), "UnderLease without a lease"},
			"a lease of another resource": {guard.Do(ctx, g.UnderLease(lease), sku, write), "resource is lead, and the call is for sku/42: acquire its lease too, and pass both to UnderLease"},
			"no grant":                    {guard.Do(ctx, receiver.UnderGrant(), sku, write), "UnderGrant without a grant"},
			"a grant of another resource": {guard.Do(ctx, receiver.UnderGrant(other), sku, write), "resource is other, and the call is for sku/42: send a grant of it along too"},
			"Close in a function":         {guard.Do(ctx, g, sku, func(ctx context.Context, _ *memory.Tx) error { return g.Close(ctx) }), "let it return first"},
			"Close in a Hold":             {hold(func(ctx context.Context, _ held) error { return g.Close(ctx) }), "let it return first"},
			"two grants of one resource":  {guard.Do(ctx, receiver.UnderGrant(grant(1), grant(2)), sku, write), "resource has two grants: sku/42"},
			"a grant that is none":        {guard.Do(ctx, receiver.UnderGrant(fence.Grant{Resource: sku}), sku, write), "epoch"},
			"a Hold under another one's":  {guard.Hold(ctx, receiver.UnderGrant(other), sku, func(context.Context, held) error { return nil }), "the call is for sku/42"},
		} {
			require.ErrorIs(t, c.err, guard.ErrInvalid, name)
			require.ErrorContains(t, c.err, c.says, name)
			require.False(t, guard.SafeToRetry(c.err), name)
		}
		for _, name := range []string{"no grant", "other"} {
			err := guard.Do(ctx, receiver.UnderGrant(map[string][]fence.Grant{"other": {other}}[name]...), sku, write)
			require.ErrorAs(t, err, new(*fence.InvalidGrantError), "a receiver's client is to blame")
		}
		require.Empty(t, w.store.Read("k"))
		require.NoError(t, guard.Do(ctx, g, sku, func(ctx context.Context, _ *memory.Tx) error {
			return guard.Do(ctx, w.process("b", nil), "b", write)
		}), "another Guard")
	})
}

type retryable bool

func (retryable) Error() string     { return "of the user's own" }
func (r retryable) Retryable() bool { return bool(r) }

func TestSafeToRetry_SaysWhenCallingAgainIsRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, doUnderGrant(t.Context(), w.store, grant(5), set("k", "v")))
	staleGrant := doUnderGrant(t.Context(), w.store, grant(4), set("k", "v"), guard.Retryable())
	require.ErrorIs(t, staleGrant, guard.ErrStaleToken)
	rejections, err := w.store.Rejections(t.Context(), sku, 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, rejections[0].Count, "it was not tried again")
	lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), "lead")
	require.NoError(t, err)
	w.locks.Lose("lead")
	<-lease.Done()
	lostLease := guard.Do(t.Context(), w.process("a", nil).UnderLease(lease), "lead", set("k", "v"))
	require.ErrorIs(t, lostLease, fence.ErrLeaseLost)
	rejected := func(reason storage.Reason) error {
		return fmt.Errorf("around: %w", &guard.RejectedError{Reason: reason})
	}
	for name, c := range map[string]struct {
		err              error
		retry, startOver bool
	}{
		"nil":                        {nil, false, false},
		"user's own":                 {errShop, false, false},
		"user's own, says so":        {retryable(true), true, true},
		"user's own, says otherwise": {retryable(false), false, false},
		"stale":                      {rejected(storage.ReasonStale), true, true},
		"overtaken":                  {rejected(storage.ReasonOvertaken), true, true},
		"failed over":                {rejected(storage.ReasonFailedOver), true, true},
		"epoch behind":               {rejected(storage.ReasonEpochBehind), false, true},
		"collision":                  {rejected(storage.ReasonCollision), false, true},
		"tokens went back":           {rejected(storage.ReasonTokensWentBack), false, true},
		"token jump":                 {rejected(storage.ReasonTokenJump), false, true},
		"went back":                  {rejected(storage.ReasonWentBack), false, false},
		"stale, of a wrong service":  {errors.Join(rejected(storage.ReasonStale), rejected(storage.ReasonCollision)), false, true},
		"stale and ended by SQL":     {errors.Join(guard.ErrTxEnded, rejected(storage.ReasonStale)), false, false},
		"lease lost":                 {fmt.Errorf("around: %w", &fence.LeaseLostError{}), true, true},
		"caller's stale grant":       {staleGrant, false, true},
		"caller's lost lease":        {lostLease, false, true},
		"no effect":                  {guard.TookNoEffect(errShop), true, true},
		"no effect, caller's stale":  {errors.Join(guard.TookNoEffect(errShop), staleGrant), false, true},
		"unknown":                    {&guard.UnknownOutcomeError{AskErr: rejected(storage.ReasonStale)}, false, true},
		"unknown, with Once":         {&guard.UnknownOutcomeError{Once: true}, true, true},
		"two unknown, one with Once": {errors.Join(&guard.UnknownOutcomeError{Once: true}, &guard.UnknownOutcomeError{}), false, true},
		"unknown and ended by SQL":   {errors.Join(&guard.UnknownOutcomeError{Once: true}, guard.ErrTxEnded), false, false},
		"unknown when it closed":     {&guard.UnknownOutcomeError{Once: true, AskErr: guard.ErrClosed}, true, true},
		"unknown in words":           {fmt.Errorf("around: %w", guard.ErrUnknownOutcome), false, true},
		"key reused, lease lost":     {errors.Join(guard.ErrKeyReused, &fence.LeaseLostError{}), false, false},
		"lock service unreachable":   {&fence.UnavailableError{Reason: fence.Unreachable}, true, true},
		"lock service out of space":  {&fence.UnavailableError{Reason: fence.NoSpace}, false, false},
		"closed":                     {guard.ErrClosed, false, false},
		"invalid":                    {guard.ErrInvalid, false, false},
		"out of time":                {context.DeadlineExceeded, false, false},
		"database away":              {fmt.Errorf("around: %w", guard.ErrStoreUnavailable), true, true},
		"database denies the login":  {fmt.Errorf("%w: %w", guard.ErrStoreUnavailable, retryable(false)), false, false},
	} {
		require.Equal(t, c.retry, guard.SafeToRetry(c.err), name)
		require.Equal(t, c.startOver, guard.SafeToStartOver(c.err), name)
	}
}
