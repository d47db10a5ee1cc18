package guard_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

// A call whose context ends before a group has taken it leaves.
func TestForming_CallsMayLeaveUntilTheyAreTaken(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		began := time.Now()
		for who := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			calls := []call{a.puts("x"), a.puts("y"), a.puts("z")}
			leaves := calls[who]
			calls[who] = func(context.Context) error { return leaves(ctx) }
			errs, open := a.arrive(calls...)
			cancel()
			synctest.Wait()
			require.ErrorIs(t, errs[who], context.Canceled, "at once")
			open()
			errs[who] = nil
			require.Equal(t, make([]error, 3), errs)
			stay := []string{"x", "y", "z"}
			a.inOne(append(stay[:who:who], stay[who+1:]...)...)
		}
		require.Equal(t, "xx yy zz", a.store.Read("x")+" "+a.store.Read("y")+" "+a.store.Read("z"))
		require.Zero(t, time.Since(began))
	})
}

// The leader may leave as well, and so may the call that would lead next.
func TestForming_AnotherCallLeadsWhenTheLeaderLeaves(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		leader, cancelLeader := context.WithCancel(t.Context())
		first, second := a.puts("x"), a.puts("y")
		errs, open := a.arrive(func(context.Context) error { return first(leader) }, func(context.Context) error { return second(ctx) }, a.puts("z"), a.puts("w"))
		cancel()
		synctest.Wait()
		cancelLeader()
		synctest.Wait()
		open()
		require.ErrorIs(t, errs[0], context.Canceled)
		require.ErrorIs(t, errs[1], context.Canceled)
		a.inOne("z", "w")
		require.Zero(t, time.Since(began))
	})
}

// A call whose context ends just before a group takes it is left out.
func TestForming_LeavesOutWhatHasEnded(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		ctx, cancel := context.WithCancel(t.Context())
		late := a.puts("y")
		a.gate.taking = cancel
		errs := a.meet(a.puts("x"), func(context.Context) error { return late(ctx) }, a.puts("z"))
		require.ErrorIs(t, errs[1], context.Canceled)
		require.NoError(t, errs[0])
		require.NoError(t, errs[2])
		a.inOne("x", "z")
		require.Empty(t, a.store.Read("y"))
	})
}

// The end of a context that comes when a group has taken the call has no effect.
func TestForming_ContextOfOneThatWasTakenHasNoEffect(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		ctx, cancel := context.WithCancel(t.Context())
		taken := a.puts("y")
		errs := a.meet(a.batch("x", func(c context.Context, tx *memory.Tx) error {
			cancel()
			synctest.Wait()
			return put("x", "x")(c, tx)
		}), func(context.Context) error { return taken(ctx) })
		require.Equal(t, make([]error, 2), errs)
		a.inOne("x", "y")
	})
}

// A resource for which another process waits is passed on after a while, also if a call waits
// for a group with the turn.
func TestForming_LeavesOutWhatIsToBePassedOn(t *testing.T) {
	for _, role := range []string{"joins", "leads"} {
		t.Run(role, func(t *testing.T) {
			inAcrossOf(t, nil, func(t *testing.T, a *across) {
				guard.SetMaxHold(a.guard, time.Millisecond)
				other := a.process("b", nil)
				require.Equal(t, make([]error, 2), a.meet(a.puts("x"), a.puts("z")))
				ctx, cancel := context.WithCancel(t.Context())
				first := a.puts("z")
				errs, open := a.arrive(func(context.Context) error { return first(ctx) }, a.batch("x", put("k", "x")))
				waits := make(chan error, 1)
				go func() { waits <- guard.Do(t.Context(), other, "x", put("k", "o")) }()
				synctest.Wait()
				time.Sleep(2 * time.Millisecond)
				if role == "leads" {
					cancel()
					synctest.Wait()
				}
				open()
				require.NoError(t, errs[1])
				require.NoError(t, <-waits)
				require.Equal(t, "ox", a.store.Read("k"))
				cancel()
			})
		})
	}
}

// busy begins groups on resources of their own until one more has to wait for them, and
// returns what ends them.
func (a *across) busy() (end func()) {
	release := make(chan struct{})
	limit := guard.MaxUnderWay(a.guard)
	errs := make(chan error, limit)
	for i := range limit {
		go func() {
			errs <- a.batch(fmt.Sprint("busy/", i), func(context.Context, *memory.Tx) error { <-release; return nil })(a.Context())
		}()
		synctest.Wait()
	}
	return func() {
		close(release)
		for range limit {
			require.NoError(a, <-errs)
		}
	}
}

// begin begins calls and returns a channel of their errors.
func (a *across) begin(calls ...call) <-chan error {
	errs := make(chan error, len(calls))
	for _, c := range calls {
		go func() { errs <- c(a.Context()) }()
		synctest.Wait()
	}
	return errs
}

// While some groups are under way calls wait, and share the next transaction.
func TestForming_GrowsWithTheLoad(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		end := a.busy()
		began := time.Now()
		errs := a.begin(a.puts("x"), a.puts("y"), a.puts("z"))
		require.Empty(t, a.writes("x"))
		end()
		for range 3 {
			require.NoError(t, <-errs)
		}
		a.inOne("x", "y", "z")
		require.Zero(t, time.Since(began))
	})
}

// Groups that hang don't keep calls on other resources.
func TestForming_WaitsForGroupsThatHangNoLongerThanItsPatience(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		end := a.busy()
		began := time.Now()
		for range 3 {
			errs := a.begin(a.puts("x"), a.puts("y"))
			require.NoError(t, <-errs)
			require.NoError(t, <-errs)
			a.inOne("x", "y")
		}
		require.Equal(t, 3*guard.Patience, time.Since(began))
		end()
	})
}

// The same while the store has no connection: each has to learn of it in time.
func TestForming_CallsDontWaitForEachOthersConnections(t *testing.T) {
	inAcrossOf(t, &guard.Config{StoreTimeout: time.Second}, func(t *testing.T, a *across) {
		began := time.Now()
		errs, open := a.arrive(a.puts("x"), a.puts("y"), a.puts("z"))
		defer open()
		time.Sleep(time.Second + 2*guard.Patience)
		synctest.Wait()
		for _, err := range errs {
			require.ErrorIs(t, err, guard.ErrStoreUnavailable)
		}
		require.Equal(t, time.Second+2*guard.Patience, time.Since(began))
	})
}

// A group that can't have more calls waits for no other.
func TestForming_AFullGroupBeginsAtOnce(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		end := a.busy()
		var calls []call
		var names []string
		for i := range guard.MaxBatchCalls {
			names = append(names, fmt.Sprint("sku/", i))
			calls = append(calls, a.puts(names[i]))
		}
		began := time.Now()
		errs := a.begin(calls...)
		for range calls {
			require.NoError(t, <-errs)
		}
		a.inOne(names...)
		require.Zero(t, time.Since(began))
		end()
	})
}

// A group that failed because a lease was lost holds no turn while one of its calls waits for
// that lock.
func TestForming_GroupThatFailedWaitsWithNoTurn(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		other := a.process("b", nil)
		require.Equal(t, make([]error, 2), a.meet(a.puts("x"), a.puts("y")))
		release, entered, held := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		lost := false
		errs, open := a.arrive(a.batch("x", func(ctx context.Context, tx *memory.Tx) error {
			if !lost {
				lost = true
				a.locks.Lose("x")
				go func() {
					held <- guard.Do(t.Context(), other, "x", func(context.Context, *memory.Tx) error { close(entered); <-release; return nil })
				}()
				<-entered
				return errShop
			}
			return put("x", "x")(ctx, tx)
		}), a.puts("y"))
		ended := make(chan struct{})
		go func() { open(); close(ended) }()
		synctest.Wait()
		require.NoError(t, errs[1], "y runs alone while x waits for its lock")
		require.Equal(t, "yy", a.store.Read("y"))
		require.NoError(t, guard.Do(t.Context(), a.guard, "y", put("y", "!")), "and its turn is free")
		close(release)
		<-ended
		require.NoError(t, <-held)
		require.Equal(t, make([]error, 2), errs)
		require.Equal(t, "xx", a.store.Read("x"))
	})
}

// Close ends what hangs, and fails what waits.
func TestForming_Close(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		errs, open := a.arrive(a.puts("x"), a.puts("y"), a.puts("z"))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, a.guard.Close(ctx))
		open()
		for _, err := range errs {
			require.ErrorIs(t, err, fence.ErrClosed)
		}
		require.Zero(t, a.locks.Holder("x"))
	})
}
