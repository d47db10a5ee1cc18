package guard_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// inOne requires that the last writes of resources are of one transaction, and returns it.
func (a *batches) inOne(resources ...string) (tx storage.TxID) {
	a.Helper()
	for _, r := range resources {
		writes := a.writes(r)
		require.NotEmpty(a, writes, r)
		last := writes[len(writes)-1].tx
		require.True(a, tx == 0 || tx == last, "%s was written by another transaction", r)
		tx = last
	}
	return tx
}

// apart requires that the last writes of resources are of different transactions.
func (a *batches) apart(resources ...string) {
	a.Helper()
	seen := map[storage.TxID]string{}
	for _, r := range resources {
		tx := a.inOne(r)
		require.Empty(a, seen[tx], r)
		seen[tx] = r
	}
}

func TestAcross_CallsOnDifferentResourcesShareATransaction(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
		grants := map[string]string{}
		calls := []call{}
		for _, r := range []string{"z", "x", "y"} {
			calls = append(calls, a.on(r, func(ctx context.Context, tx *memory.Tx) error {
				for _, g := range guard.Grants(ctx) {
					grants[r] += g.Resource
				}
				return put(r, r)(ctx, tx)
			}))
		}
		require.Equal(t, make([]error, 3), a.meet(calls...))
		a.inOne("x", "y", "z")
		for _, r := range []string{"x", "y", "z"} {
			require.Equal(t, r, a.store.Read(r))
			require.Equal(t, r, a.writes(r)[0].ops, "each resource's entry has its own operations")
			require.Equal(t, r, grants[r], "each operation sees its own grant")
		}
	})
}

// If one fails, nothing has happened. It runs alone, so its error is its own, and the others run again: together,
// since none of them is to blame, or each alone if the store doesn't know which one failed.
func TestAcross_ThatFailsRunsAlone(t *testing.T) {
	for writes, blind := range map[string]bool{"x x2": false, "x": true} {
		t.Run(writes, func(t *testing.T) {
			inBatches(t, nil, func(t *testing.T, a *batches) {
				a.blind = blind
				errs := a.meet(a.puts("x"), a.named("x", "x2", put("x", "2")), a.on("bad", fails(put("bad", "bad"))), a.puts("y"))
				require.ErrorIs(t, errs[2], errShop)
				errs[2] = nil
				require.Equal(t, make([]error, 4), errs)
				require.Equal(t, []string{"x2", "", "y"}, []string{a.store.Read("x"), a.store.Read("bad"), a.store.Read("y")})
				require.Equal(t, writes, a.writes("x")[0].ops, "in the order of the queue")
				require.Equal(t, 2, strings.Count(strings.Join(a.ran, " "), "bad"))
			})
		})
	}
}

// After a group that failed there is none for a while, and one that failed alone joins
// none before one on its resource has succeeded.
func TestAcross_BacksOffAfterAFailure(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
		a.blind = true
		bad := a.on("bad", fails(put("bad", "bad")))
		a.meet(a.puts("x"), bad, a.puts("y"))
		for range 2 {
			a.meet(a.puts("x"), a.puts("y"))
			a.apart("x", "y")
		}
		errs := a.meet(a.puts("x"), bad, a.puts("y"))
		require.ErrorIs(t, errs[1], errShop)
		a.inOne("x", "y")
		a.meet(a.puts("x"), a.puts("bad"), a.puts("y"))
		a.inOne("x", "y")
		a.apart("x", "bad")
		a.meet(a.puts("x"), a.puts("bad"), a.puts("y"))
		a.inOne("x", "bad", "y")
	})
}

// Each call has its own error, and its resource settles the doubt before it is used again.
func TestAcross_UnknownOutcome(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
		away := true
		a.store.SetFaults(memory.Faults{Commit: fates(memory.Late), Resolve: func(storage.InDoubt) error {
			if away {
				return errShop
			}
			return nil
		}})
		names := []string{"x", "y", "x2"}
		errs := a.meet(a.puts("x"), a.puts("y"), a.named("x", "x2", put("x", "2")))
		for i, err := range errs {
			unknown := new(guard.UnknownOutcomeError)
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, names[i], unknown.Record.Name)
			require.Len(t, unknown.Grants, 1)
			require.Equal(t, names[i][:1], unknown.Grants[0].Resource)
		}
		require.Len(t, a.ran, 3, "what may have taken effect doesn't run again")
		away = false
		require.NoError(t, a.named("y", "y2", put("y", "2"))(t.Context()))
		for _, err := range errs {
			applied, askErr := err.(*guard.UnknownOutcomeError).Resolve(t.Context())
			require.NoError(t, askErr)
			require.False(t, applied)
		}
		a.store.Deliver()
		require.NoError(t, a.named("x", "x3", put("x", "3"))(t.Context()))
		require.Equal(t, "3 2", a.store.Read("x")+" "+a.store.Read("y"))
	})
}

// SQL of one has ended the transaction: what was written may stay, also by the others.
func TestAcross_EndedTransactionRunsNothingAgain(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
		for _, err := range a.meet(a.puts("x"), a.on("ends", func(context.Context, *memory.Tx) error { return guard.ErrTxEnded }), a.puts("y")) {
			require.ErrorIs(t, err, guard.ErrTxEnded)
		}
		require.Equal(t, []string{"x", "ends"}, a.ran)
	})
}

// The leader's store panics, or its goroutine ends: the others go on.
func TestAcross_StoreThatDoesNotReturn(t *testing.T) {
	for step, end := range map[string]func(){"commit": explode, "begin": runtime.Goexit} {
		t.Run(step, func(t *testing.T) {
			inBatches(t, nil, func(t *testing.T, a *batches) {
				a.ending = &endingOnce{at: step, end: end}
				errs := a.meet(a.puts("x"), a.puts("y"), a.named("x", "x2", put("x", "2")), a.puts("z"))
				require.ErrorIs(t, errs[0], errGone)
				for _, err := range errs[1:] {
					if step == "commit" {
						require.ErrorIs(t, err, guard.ErrUnknownOutcome)
					} else {
						require.NoError(t, err)
					}
				}
				errs = a.meet(a.on("x", func(context.Context, *memory.Tx) error { panic("boom") }), a.puts("y"), a.puts("z"))
				require.Equal(t, []error{errGone, nil, nil}, errs, "of an operation's own panic")
				require.Equal(t, make([]error, 3), a.meet(a.puts("x"), a.puts("y"), a.puts("z")))
			})
		})
	}
}

type ungrouped struct{ *hookedStore }

func (ungrouped) CanGroup() bool { return false }

// An operation that leaves a setting, say, shares its transaction with none: neither on its resource nor on others.
func TestAcross_OperationsMayDecline(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
		alone := func(resource, name string) call {
			return func(ctx context.Context) error {
				return guard.Exec(ctx, a.guard, resource, &batchOp{run: a.noting(name, put(resource, name)), alone: true}, guard.Name(name))
			}
		}
		require.Equal(t, make([]error, 5), a.meet(a.puts("x"), alone("y", "y"), a.puts("z"), alone("x", "x2"), a.named("x", "x3", put("x", "3"))))
		a.inOne("z")
		require.Equal(t, "x", a.writes("x")[0].ops)
		require.Equal(t, a.writes("x")[0].tx, a.writes("z")[0].tx)
		require.Equal(t, []string{"x2", "x3"}, []string{a.writes("x")[1].ops, a.writes("x")[2].ops})
		a.apart("y", "z")

		a.guard = a.world.on(ungrouped{a.db}, nil)
		require.Equal(t, make([]error, 2), a.meet(a.puts("1"), a.puts("2")), "on a store that can't have several")
		a.apart("1", "2")
	})
}

func TestForming_CallsMayLeaveUntilTheyAreTaken(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
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

// A resource for which another process waits is passed on after a while, also if a call waits
// for a group with the turn.
func TestForming_LeavesOutWhatIsToBePassedOn(t *testing.T) {
	for _, role := range []string{"joins", "leads"} {
		t.Run(role, func(t *testing.T) {
			inBatches(t, nil, func(t *testing.T, a *batches) {
				guard.SetMaxHold(a.guard, time.Millisecond)
				other := a.process("b", nil)
				require.Equal(t, make([]error, 2), a.meet(a.puts("x"), a.puts("z")))
				ctx, cancel := context.WithCancel(t.Context())
				first := a.puts("z")
				errs, open := a.arrive(func(context.Context) error { return first(ctx) }, a.on("x", put("k", "x")))
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

// busy begins groups on resources of their own until one more has to wait for them, and returns what ends them.
func (a *batches) busy() (end func()) {
	release := make(chan struct{})
	limit := guard.MaxUnderWay(a.guard)
	errs := make(chan error, limit)
	for i := range limit {
		go func() {
			errs <- a.on(fmt.Sprint("busy/", i), func(context.Context, *memory.Tx) error { <-release; return nil })(a.Context())
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

func (a *batches) begin(calls ...call) <-chan error {
	errs := make(chan error, len(calls))
	for _, c := range calls {
		go func() { errs <- c(a.Context()) }()
		synctest.Wait()
	}
	return errs
}

// A call alone waits for none. While some groups are under way calls wait, and share the next transaction.
func TestForming_GrowsWithTheLoad(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
		began := time.Now()
		require.NoError(t, a.puts("alone")(t.Context()))
		end := a.busy()
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

func TestForming_WaitsForGroupsThatHangNoLongerThanItsPatience(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
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

func TestForming_Close(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, a *batches) {
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
