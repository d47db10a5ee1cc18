package guard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// replacedStore is a database whose primary can be replaced by another one, which has received nothing.
type replacedStore struct{ *hookedStore }

func (s *replacedStore) replace(t *testing.T) {
	s.Store = memory.NewStore()
	standby := s.Store
	t.Cleanup(func() { require.Zero(t, standby.Open(), "transactions were left open") })
}

func newReplaced(t *testing.T, w *world, cfg *guard.Config) (*guard.Guard[*memory.Tx], *replacedStore) {
	s := &replacedStore{&hookedStore{Store: w.store}}
	return w.on(s, cfg), s
}

func notRun(context.Context, *memory.Tx) error { return errors.New("the function ran") }

// requireNamedOnce requires that the next call is told that the database went back, before its
// function runs and though it may run again, and that the call after it takes effect.
func requireNamedOnce(t *testing.T, g guard.Runner[*memory.Tx]) {
	t.Helper()
	err := guard.Do(t.Context(), g, sku, notRun, guard.Retryable())
	requireRejected(t, err, storage.ReasonWentBack)
	require.False(t, guard.SafeToRetry(err))
	require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
}

var releasing = &guard.Config{KeepFor: -1}

// The database loses what a process was told before: its next call is told, whatever comes in between.
func TestSeen_LossIsNamed(t *testing.T) {
	away := errors.New("away")
	for name, test := range map[string]struct {
		cfg   *guard.Config
		loses func(t *testing.T, g *guard.Guard[*memory.Tx], s *replacedStore)
	}{
		"after the resource was given up": {releasing, func(t *testing.T, g *guard.Guard[*memory.Tx], s *replacedStore) {
			s.replace(t)
			requireNamedOnce(t, g)
			s.replace(t)
		}},
		// A call that fails while the database is away gives the resource up, with a transaction in doubt.
		"after an outage": {nil, func(t *testing.T, g *guard.Guard[*memory.Tx], s *replacedStore) {
			s.SetFaults(memory.Faults{
				Commit:  func(storage.InDoubt) memory.Fate { return memory.RequestLost },
				Resolve: func(storage.InDoubt) error { return away },
				Claim:   func(fence.Grant) error { return away },
			})
			require.ErrorIs(t, guard.Do(t.Context(), g, sku, increment("n")), guard.ErrUnknownOutcome)
			require.ErrorIs(t, guard.Do(t.Context(), g, sku, notRun), away)
			require.ErrorIs(t, guard.Do(t.Context(), g, sku, notRun), away)
			s.replace(t)
		}},
		// A rejection that names no loss is followed by one that does; also inside one call that may run again.
		"behind a failover": {nil, func(t *testing.T, _ *guard.Guard[*memory.Tx], s *replacedStore) {
			s.SetFaults(memory.Faults{Begin: func(claims []storage.Claim) error {
				s.replace(t)
				return &guard.RejectedError{Reason: storage.ReasonFailedOver, Stage: storage.StageBegin, Grant: claims[0].Grant}
			}})
		}},
		// What a COMMIT in doubt met is not what its call returns.
		"behind an unknown outcome": {nil, func(t *testing.T, g *guard.Guard[*memory.Tx], s *replacedStore) {
			s.SetFaults(wentBackInDoubt)
			require.ErrorIs(t, guard.Do(t.Context(), g, sku, increment("n")), guard.ErrUnknownOutcome)
			s.replace(t)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g, s := newReplaced(t, w, test.cfg)
				require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
				test.loses(t, g, s)
				requireNamedOnce(t, g)
				require.Equal(t, "1", s.Read("n"))
			})
		})
	}
}

// wentBackInDoubt has each COMMIT lost, and the answer to what became of it is that the database went back.
var wentBackInDoubt = memory.Faults{
	Commit: func(storage.InDoubt) memory.Fate { return memory.RequestLost },
	Resolve: func(d storage.InDoubt) error {
		return &guard.RejectedError{Reason: storage.ReasonWentBack, Stage: storage.StageSeal, Grant: d.Claims[0].Grant}
	},
}

// The fence on the new primary may be where it was, or beyond, by other processes' moves.
func TestSeen_LossIsNamedWhereOthersHaveMovedTheFenceOn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, s := newReplaced(t, w, releasing)
		require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
		s.replace(t)
		b := w.processWith(w.locks.NewLocker("b"), s, releasing)
		for range 3 {
			require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
		}
		requireNamedOnce(t, g)
		require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")), "b has lost nothing")
		require.Equal(t, "5", s.Read("n"))
	})
}

func TestSeen_LossIsNamedToWhoHasOnlyRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, s := newReplaced(t, w, nil)
		b := w.processWith(w.locks.NewLocker("b"), s, releasing)
		require.NoError(t, guard.Do(t.Context(), b, sku, increment("n")))
		var n string
		require.NoError(t, guard.Do(t.Context(), g, sku, reads("n", &n), guard.ReadOnly(), guard.Retryable()))
		s.replace(t)
		requireNamedOnce(t, g)
	})
}

func TestSeen_LossIsNamedUnderACallersGrant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := &replacedStore{&hookedStore{Store: w.store}}
		g := w.processWith(nil, s, nil)
		for token := range fence.Token(3) {
			on := g.UnderGrant(grant(token + 5))
			if token > 0 {
				s.replace(t)
				requireRejected(t, guard.Do(t.Context(), on, sku, notRun, guard.Retryable()), storage.ReasonWentBack)
			}
			require.NoError(t, guard.Do(t.Context(), on, sku, increment("n")))
		}
	})
}

func TestSeen_IsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g, s := newReplaced(t, w, releasing)
	all := make([]string, 2*guard.MaxSeen)
	for n := range all {
		all[n] = fmt.Sprintf("sku/%d", n)
	}
	nothing := func(context.Context, held) error { return nil }
	for names := range slices.Chunk(all, guard.MaxResources) {
		require.NoError(t, guard.Hold(t.Context(), g, names, nothing))
	}
	s.replace(t)
	require.NoError(t, guard.Hold(t.Context(), g, all[0], nothing), "it was used longest ago")
	for _, n := range []int{guard.MaxSeen + 1, 2*guard.MaxSeen - 1} {
		requireRejected(t, guard.Hold(t.Context(), g, all[n], nothing), storage.ReasonWentBack)
	}
}

// Batches that shared a transaction run again whatever it has met. The first that does is told.
func TestSeen_LossIsNamedBehindASharedTransaction(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
		require.Equal(t, []error{nil}, a.meet(a.adds("k")))
		standby := memory.NewStore()
		gated := a.db.before
		a.db.before = func(ctx context.Context, step string, claims []storage.Claim) error {
			if step == "commit" && a.db.Store != standby {
				a.db.Store = standby
				return &guard.RejectedError{Reason: storage.ReasonWentBack, Stage: storage.StageSeal, Grant: claims[0].Grant}
			}
			return gated(ctx, step, claims)
		}
		errs := a.meet(a.adds("a"), a.adds("b"))
		requireRejected(t, errs[0], storage.ReasonWentBack)
		require.NoError(t, errs[1])
		require.Equal(t, "b", standby.Read("k"))
	})
}

// Of two calls under one grant the one that has seen less may end last: what the other was told stays.
func TestSeen_IsTheLatestOfSeveralCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var seen []storage.Claim
		g := w.processWith(nil, &hookedStore{Store: w.store, before: func(_ context.Context, step string, claims []storage.Claim) error {
			if step == "claim" {
				seen = claims
			}
			return nil
		}}, nil)
		on := g.UnderGrant(grant(5))
		require.ErrorIs(t, guard.Do(t.Context(), on, sku, func(context.Context, *memory.Tx) error {
			require.NoError(t, guard.Do(t.Context(), on, sku, increment("n")))
			return errShop
		}), errShop)
		require.NoError(t, guard.Do(t.Context(), on, sku, increment("n")))
		require.EqualValues(t, 2, seen[0].Seq, "the claim and the write")
	})
}
