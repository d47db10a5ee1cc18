package guard_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

func grant(token fence.Token) fence.Grant {
	return fence.Grant{Resource: sku, Epoch: 1, Token: token, Holder: "h-" + token.String()}
}

// The owner of a rejected grant has to get another: that is the sender if the grant
// travelled, and otherwise the process itself.
func TestRejection_SaysThatTheGrantTravelled(t *testing.T) {
	t.Parallel()
	superseded := func(run func(g *guard.Guard[*memory.Tx], lease fence.Lease) error) *guard.RejectedError {
		w := newWorld(t)
		var seen *guard.RejectedError
		g := w.process("a", &guard.Config{Observers: []*guard.Observer{{Rejected: func(_ context.Context, err *guard.RejectedError) { seen = err }}}})
		lease, err := guardtest.NewLocker().Acquire(t.Context(), sku)
		require.NoError(t, err)
		later := lease.Grant()
		later.Token += 1 << 30 // of a lock service that is far ahead of the process's
		require.NoError(t, doUnderGrant(t.Context(), w.store, later, set("k", "v")))
		var rejected *guard.RejectedError
		require.ErrorAs(t, run(g, lease), &rejected)
		require.Same(t, rejected, seen)
		return rejected
	}
	write := set("k", "late")
	under := map[string]func(g *guard.Guard[*memory.Tx], lease fence.Lease) error{
		"its own": func(g *guard.Guard[*memory.Tx], _ fence.Lease) error { return guard.Do(t.Context(), g, sku, write) },
		"a lease": func(g *guard.Guard[*memory.Tx], l fence.Lease) error {
			return guard.Do(t.Context(), g.UnderLease(l), sku, write)
		},
		"travelled": func(g *guard.Guard[*memory.Tx], l fence.Lease) error {
			return guard.Do(t.Context(), g.UnderGrant(l.Grant()), sku, write)
		},
		"travelled, in a Hold": func(g *guard.Guard[*memory.Tx], l fence.Lease) error {
			return guard.Hold(t.Context(), g.UnderGrant(l.Grant()), sku, func(ctx context.Context, h held) error { return guard.Do(ctx, h, sku, write) })
		},
	}
	for name, run := range under {
		require.Equal(t, strings.HasPrefix(name, "travelled"), superseded(run).Travelled, name)
	}
}

// The error contains the command to type. Once that was done, a call whose grant is from before it takes another one.
func TestRejection_ForAnEpochBehindSaysWhatToType(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ahead := grant(1)
	ahead.Epoch = 3
	_, err := w.store.Claim(t.Context(), storage.Claim{Grant: ahead})
	require.NoError(t, err)
	g := w.process("a", nil)
	err = guard.Do(t.Context(), g, sku, set("k", "v"))
	requireRejected(t, err, storage.ReasonEpochBehind)
	require.ErrorContains(t, err, "has epoch 1, but the database has seen epoch 3: acquire again; if that has the same epoch: set the lock service's epoch to 3")
	w.store.SetFaults(memory.Faults{Claim: func(fence.Grant) error { w.locks.SetEpoch(3); return nil }})
	require.NoError(t, guard.Do(t.Context(), g, sku, set("k", "v")))
	require.Equal(t, 4, w.locks.Grants())
}

// raiser can be told where to go on.
type raiser struct {
	*guardtest.Locker
	raises func(above fence.Grant) error
	raised []fence.Grant
}

func (r *raiser) Raise(_ context.Context, above fence.Grant) error {
	r.raised = append(r.raised, above)
	return r.raises(above)
}

// A lock service that lost its count is told where to go on, once in a call, and the call that was rejected succeeds.
func TestRaiser_ACallGoesOnAboveTheFence(t *testing.T) {
	t.Parallel()
	for _, token := range []fence.Token{3, 9} { // below the fence's, and the same
		w := newWorld(t)
		seen := grant(9)
		_, err := w.store.Claim(t.Context(), storage.Claim{Grant: seen})
		require.NoError(t, err)
		lostCount := func(raises func(fence.Grant) error) (*raiser, *guard.Guard[*memory.Tx]) {
			w.locks.SetToken(token)
			r := &raiser{Locker: w.locks.NewLocker("r"), raises: raises}
			return r, w.processOn(r, nil)
		}
		away := errors.New("away")
		for _, says := range []error{away, nil} { // it raises nothing
			r, g := lostCount(func(fence.Grant) error { w.locks.SetToken(token); return says })
			rejected := new(storage.RejectedError)
			err := guard.Do(t.Context(), g, sku, notRun)
			require.ErrorAs(t, err, &rejected)
			require.Equal(t, says != nil, errors.Is(err, away))
			require.Equal(t, seen, rejected.Current)
			require.ErrorIs(t, err, guard.ErrStaleToken, "nothing that an operator could mend")
			require.NotErrorIs(t, err, guard.ErrWrongLockService)
			require.True(t, guard.SafeToRetry(err))
			if says == nil {
				require.Equal(t, []fence.Grant{seen, seen}, r.raised, "the next call begins above the fence")
			}
			require.NoError(t, g.Close(t.Context()))
		}
		r, g := lostCount(func(above fence.Grant) error { w.locks.SetToken(above.Token + 1); return nil })
		for range 2 {
			require.NoError(t, guard.Do(t.Context(), g, sku, increment("n")))
		}
		require.Equal(t, []fence.Grant{seen}, r.raised)
		require.Equal(t, "2", w.store.Read("n"))
		require.Equal(t, fence.Token(10), w.locks.Holder(sku).Token)

		w.locks.SetToken(token)
		r.raised = nil
		w.locks.Lose(sku)
		leader, err := r.Acquire(t.Context(), sku) // below the fence
		require.NoError(t, err)
		require.ErrorIs(t, guard.Do(t.Context(), g.UnderLease(leader), sku, notRun), guard.ErrStaleToken)
		require.Len(t, r.raised, 1, "so the leader's next lease is above it")
	}
}

// Each resource has a count of its own, and all are lost at once. To raise them must not hide that the database lost
// what this process saw of one.
func TestRaiser_ACallOnSeveralResourcesGoesOnAboveEachFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, skus := &replacedStore{&hookedStore{Store: w.store}}, []string{"sku/1", "sku/2", "sku/3"}
	g := w.processWith(&raiser{Locker: w.locks.NewLocker("r"), raises: func(above fence.Grant) error { w.locks.SetToken(above.Token + 1); return nil }}, s, releasing)
	for i, sku := range skus {
		seen := fence.Grant{Resource: sku, Epoch: 1, Token: fence.Token(10 * (i + 1)), Holder: "h"}
		_, err := s.Claim(t.Context(), storage.Claim{Grant: seen})
		require.NoError(t, err)
	}
	require.NoError(t, guard.Do(t.Context(), g, skus, increment("n")))
	require.Equal(t, "1", s.Read("n"))
	s.replace(t)
	_, err := s.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/0", Epoch: 1, Token: 100, Holder: "h"}})
	require.NoError(t, err)
	require.ErrorIs(t, guard.Do(t.Context(), g, []string{"sku/0", "sku/1"}, notRun, guard.Retryable()), guard.ErrFailedOver)
}

// No call begins under a grant while an earlier one is in doubt (G6), nor while that is being asked about.
func TestUnderGrant_SettlesWhatAnEarlierCallLeftInDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		fate  memory.Fate
		value string
	}{"not applied": {memory.Late, "1"}, "applied": {memory.ReplyLost, "2"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				g := w.processWith(nil, w.store, nil)
				on := g.UnderGrant(grant(7))
				w.store.SetFaults(memory.Faults{Commit: fates(test.fate), Resolve: func(storage.InDoubt) error { return temporaryError{} }})
				first := make(chan error, 1)
				go func() { first <- guard.Do(t.Context(), on, sku, increment("n")) }()
				synctest.Wait() // it asks
				for _, option := range []guard.ValueOption{guard.ReadOnly(), guard.OpName("write")} {
					began := false
					for range 2 {
						_, err := guard.Value(t.Context(), g.UnderGrant(grant(7)), sku, func(context.Context, *memory.Tx) (int, error) {
							began = true
							return 0, nil
						}, option)
						require.ErrorContains(t, err, "an earlier operation is unresolved")
						require.True(t, guard.SafeToRetry(err))
						require.False(t, began)
					}
				}
				require.ErrorIs(t, <-first, guard.ErrUnknownOutcome)
				require.ErrorContains(t, guard.Do(t.Context(), on, sku, increment("n")), "an earlier operation is unresolved")
				w.store.SetFaults(memory.Faults{})
				var read string
				require.NoError(t, guard.Do(t.Context(), on, sku, func(_ context.Context, tx *memory.Tx) error {
					read, _ = tx.Get("n")
					return nil
				}, guard.ReadOnly()))
				require.Zero(t, guard.Doubts(g))
				require.NoError(t, guard.Do(t.Context(), on, sku, increment("n")))
				w.store.Deliver()
				require.Equal(t, test.value, w.store.Read("n"))
				require.Equal(t, test.value == "2", read == "1")
			})
		})
	}
}

// A Hold that has one of its own in doubt settles what other calls under its grant have left since, too (G6).
func TestUnderGrant_HoldSettlesWhatOthersLeftAfterItsOwnDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.processWith(nil, w.store, nil)
		on := g.UnderGrant(grant(7))
		var own storage.TxID // the Hold's
		back := false
		w.store.SetFaults(memory.Faults{Commit: fates(memory.ReplyLost, memory.Late), Resolve: func(d storage.InDoubt) error {
			own = cmp.Or(own, d.Tx)
			if back && d.Tx == own {
				return nil
			}
			return temporaryError{}
		}})
		err := guard.Hold(t.Context(), on, sku, func(ctx context.Context, h held) error {
			require.ErrorIs(t, guard.Do(ctx, h, sku, increment("n")), guard.ErrUnknownOutcome)
			back = true
			require.ErrorIs(t, guard.Do(t.Context(), on, sku, increment("n")), guard.ErrUnknownOutcome)
			require.ErrorContains(t, guard.Do(ctx, h, sku, func(context.Context, *memory.Tx) error {
				require.Fail(t, "began while a transaction of its grant was in doubt")
				return nil
			}, guard.ReadOnly()), "an earlier operation is unresolved")
			w.store.SetFaults(memory.Faults{})
			return guard.Do(ctx, h, sku, increment("n"))
		})
		require.ErrorIs(t, err, guard.ErrOvertaken)
		require.Zero(t, guard.Doubts(g))
		w.store.Deliver()
		require.Equal(t, "1", w.store.Read("n"))
	})
}

func TestUnderLease_WritesUnderTheCallersLease(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g, other := w.process("a", nil), w.process("b", nil)
		lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
		require.NoError(t, err)
		write := func(ctx context.Context, h held) error {
			require.Equal(t, lease.Grant(), guard.Grants(ctx)[0])
			return guard.Do(ctx, h, sku, increment("n"))
		}
		for range 2 {
			require.NoError(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, write))
		}
		require.Equal(t, lease.Grant(), w.locks.Holder(sku), "the lease is the caller's")

		err = guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, h held) error {
			w.locks.Lose(sku)
			synctest.Wait()
			require.ErrorIs(t, context.Cause(ctx), fence.ErrLeaseLost)
			require.NoError(t, guard.Do(t.Context(), other, sku, increment("n")))
			return guard.Do(context.WithoutCancel(ctx), h, sku, increment("n"))
		})
		require.ErrorIs(t, err, guard.ErrStaleToken)
		require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, write), fence.ErrLeaseLost)
		require.Equal(t, "3", w.store.Read("n"))

		again, err := w.locks.NewLocker("leader").Acquire(t.Context(), "again")
		require.NoError(t, err)
		another, err := w.locks.NewLocker("leader").Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.NoError(t, guard.Do(t.Context(), g.UnderLease(again, another), "again", func(ctx context.Context, _ *memory.Tx) error {
			require.Equal(t, []fence.Grant{another.Grant(), again.Grant()}, guard.Grants(ctx))
			return nil
		}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, guard.Hold(ended, g.UnderLease(again), "again", write), context.Canceled)
		require.NoError(t, again.Release(t.Context()))
		require.ErrorIs(t, guard.Hold(t.Context(), g.UnderLease(again), "again", write), fence.ErrReleased)
	})
}

// claimedLease was claimed with its grant.
type claimedLease struct {
	fence.Lease
	claim *storage.Claim
}

func (l claimedLease) TakeClaim() (c storage.Claim, ok bool) {
	c, *l.claim = *l.claim, storage.Claim{}
	return c, c.Resource != 0
}

// What was claimed when it was granted isn't claimed again before its first use.
func TestUnderLease_BeginsWhereTheLeaseWasClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", nil)
		lease, err := w.locks.NewLocker("worker").Acquire(t.Context(), sku)
		require.NoError(t, err)
		claims, err := w.store.Claim(t.Context(), storage.Claim{Grant: lease.Grant()})
		require.NoError(t, err)
		claimed := claimedLease{lease, &claims[0]}
		w.store.SetFaults(memory.Faults{Claim: func(fence.Grant) error { return temporaryError{} }})
		require.NoError(t, guard.Do(t.Context(), g.UnderLease(claimed), sku, increment("n")))
		w.store.SetFaults(memory.Faults{})
		require.NoError(t, guard.Do(t.Context(), g.UnderLease(claimed), sku, increment("n")))
		require.Equal(t, "2", w.store.Read("n"))
	})
}

// MaxRun is meant for requests. A leader leads for longer, and the Guard doesn't decide
// about its lease: MaxRun bounds the transactions alone.
func TestUnderLease_MaxRunDoesNotBoundAHold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.process("a", &guard.Config{MaxRun: 30 * time.Second})
		lease, err := w.locks.NewLocker("leader").Acquire(t.Context(), sku)
		require.NoError(t, err)
		require.NoError(t, guard.Hold(t.Context(), g.UnderLease(lease), lease.Grant().Resource, func(ctx context.Context, h held) error {
			for range 3 {
				time.Sleep(time.Hour)
				require.NoError(t, guard.Do(ctx, h, sku, increment("n")))
			}
			start := time.Now()
			require.ErrorIs(t, guard.Do(ctx, h, sku, func(ctx context.Context, _ *memory.Tx) error {
				<-ctx.Done()
				return ctx.Err()
			}), context.DeadlineExceeded)
			require.Equal(t, 30*time.Second, time.Since(start))
			synctest.Wait()
			require.NoError(t, ctx.Err())
			return guard.Do(ctx, h, sku, increment("n"))
		}))
		require.ErrorIs(t, guard.Do(t.Context(), g.UnderLease(lease), sku, func(ctx context.Context, _ *memory.Tx) error {
			<-ctx.Done()
			return ctx.Err()
		}), context.DeadlineExceeded)
		require.NoError(t, lease.Context().Err())
		require.Equal(t, "4", w.store.Read("n"))
	})
}

// Of several in doubt for one resource, the one at the last position settles them all.
func TestUnderGrant_KeepsTheLastThatIsInDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		g := w.processWith(nil, w.store, nil)
		on := g.UnderGrant(grant(7))
		before := make(chan struct{})
		early := make(chan error, 1)
		go func() { // begins first, and is in doubt last
			early <- guard.Do(t.Context(), on, sku, func(ctx context.Context, tx *memory.Tx) error {
				<-before
				return increment("n")(ctx, tx)
			})
		}()
		synctest.Wait()
		require.NoError(t, guard.Do(t.Context(), on, sku, increment("n")))
		w.store.SetFaults(memory.Faults{Commit: fates(memory.Late, memory.Late), Resolve: func(storage.InDoubt) error { return temporaryError{} }})
		require.ErrorIs(t, guard.Do(t.Context(), on, sku, increment("n")), guard.ErrUnknownOutcome)
		close(before)
		require.ErrorIs(t, <-early, guard.ErrUnknownOutcome)
		w.store.SetFaults(memory.Faults{})
		require.NoError(t, guard.Do(t.Context(), on, sku, func(context.Context, *memory.Tx) error {
			w.store.Deliver()
			return nil
		}))
		require.Equal(t, "1", w.store.Read("n"), "neither arrives later")
	})
}
