package guard_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// group is a test of calls that share a transaction: those that queue while another call
// runs.
type group struct {
	*world
	guard *guard.Guard[*memory.Tx]
	ran   []string // functions that began, in order
	done  []string // calls that ended, in order
}

type (
	function = func(ctx context.Context, tx *memory.Tx) error
	call     = func(ctx context.Context) error
)

// inGroup runs test on a Guard that groups up to 10 calls.
func inGroup(t *testing.T, test func(t *testing.T, g *group)) {
	t.Helper()
	inGroupOf(t, &guard.Config{MaxBatch: 10}, test)
}

func inGroupOf(t *testing.T, cfg *guard.Config, test func(t *testing.T, g *group)) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *world) {
		test(t, &group{world: w, guard: w.process("a", cfg)})
	})
}

// do is a call that appends its name to what has run.
func (g *group) do(name string, fn function, opts ...guard.Option) call {
	return g.doOn(sku, name, fn, opts...)
}

func (g *group) doOn(resource, name string, fn function, opts ...guard.Option) call {
	return func(ctx context.Context) error {
		return guard.Do(ctx, g.guard, resource, g.noting(name, fn), append(opts, guard.Name(name))...)
	}
}

// once is a call with a key.
func (g *group) once(name, key string, fn function, opts ...guard.ValueOption) call {
	return func(ctx context.Context) error {
		return doOnce(ctx, g.guard, sku, g.noting(name, fn), append(opts, guard.Name(name), guard.Once(key, nil))...)
	}
}

func (g *group) noting(name string, fn function) function {
	return func(ctx context.Context, tx *memory.Tx) error {
		g.ran = append(g.ran, name)
		return fn(ctx, tx)
	}
}

// together queues calls behind one that runs, in their order, and returns their errors.
func (g *group) together(calls ...call) []error {
	errs, done := g.queue(calls...)
	<-done
	return errs
}

// queue is together, without waiting.
func (g *group) queue(calls ...call) (errs []error, done <-chan struct{}) {
	g.Helper()
	release, first := make(chan struct{}), make(chan error, 1)
	go func() {
		first <- guard.Do(g.Context(), g.guard, sku, func(context.Context, *memory.Tx) error { <-release; return nil }, guard.Name("first"))
	}()
	synctest.Wait()
	errs = make([]error, len(calls))
	ended, all := make(chan int), make(chan struct{})
	for i, c := range calls {
		go func() {
			returned := false
			defer func() {
				if _ = recover(); !returned {
					errs[i] = errGone
				}
				ended <- i
			}()
			errs[i] = c(g.Context())
			returned = true
		}()
		synctest.Wait()
	}
	close(release)
	if err := <-first; err != nil {
		g.Fatal(err)
	}
	go func() {
		for range calls {
			g.done = append(g.done, strconv.Itoa(<-ended))
		}
		close(all)
	}()
	return errs, all
}

// errGone stands for a call that didn't return, as its function panicked or ended its goroutine.
var errGone = errors.New("the call did not return")

// history returns the names of the operations of each write, after that of the first call.
func (g *group) history() (writes []string) {
	g.Helper()
	entries, err := g.store.Entries(g.Context(), sku, 0, 1000)
	require.NoError(g, err)
	for _, e := range entries {
		if e.Kind != storage.KindWrite {
			continue
		}
		var names []string
		for _, op := range e.Ops {
			names = append(names, op.Name)
		}
		writes = append(writes, strings.Join(names, " "))
	}
	require.Equal(g, "first", writes[0])
	return writes[1:]
}

func fails(fn function) function {
	return func(ctx context.Context, tx *memory.Tx) error { return errors.Join(fn(ctx, tx), errShop) }
}

// put appends to what key has.
func put(key, text string) function {
	return func(_ context.Context, tx *memory.Tx) error {
		value, err := tx.Get(key)
		return errors.Join(err, tx.Set(key, value+text))
	}
}

func TestGroup_CallsThatWaitShareATransaction(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		errs := g.together(g.do("a", put("k", "a")), g.do("b", put("k", "b")), g.do("c", put("k", "c")))
		require.Equal(t, []error{nil, nil, nil}, errs)
		require.Equal(t, "abc", g.store.Read("k"), "in the order of the queue, each sees what those before it wrote")
		require.Equal(t, []string{"a b c"}, g.history())
		require.NoError(t, g.do("alone", put("k", "d"))(t.Context()))
		require.Equal(t, []string{"a b c", "alone"}, g.history())
	})
}

func TestGroup_ByDefaultThereIsNone(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		require.Equal(t, []error{nil, nil}, g.together(g.do("a", put("k", "a")), g.do("b", put("k", "b"))))
		require.Equal(t, []string{"a", "b"}, g.history())
	})
}

func TestGroup_HasUpToMaxBatchMembers(t *testing.T) {
	inGroupOf(t, &guard.Config{MaxBatch: 2}, func(t *testing.T, g *group) {
		var calls []call
		for _, name := range strings.Split("a b c d e", " ") {
			calls = append(calls, g.do(name, put("k", name)))
		}
		g.together(calls...)
		require.Equal(t, []string{"a b", "c d", "e"}, g.history())
	})
	_, err := guard.New(nil, memory.NewStore(), &guard.Config{MaxBatch: 61})
	require.ErrorIs(t, err, guard.ErrInvalid)
}

// Each function runs on its caller's goroutine, under its own context.
func TestGroup_FunctionsRunOnTheirCallersGoroutines(t *testing.T) {
	type key struct{}
	inGroup(t, func(t *testing.T, g *group) {
		check := func(want string) call {
			return func(ctx context.Context) error {
				before := goroutine()
				return g.do(want, func(ctx context.Context, tx *memory.Tx) error {
					if goroutine() != before || ctx.Value(key{}) != want || len(guard.Grants(ctx)) != 1 {
						return errShop
					}
					return guard.Do(ctx, g.guard, sku, set("k", "v"))
				})(context.WithValue(ctx, key{}, want))
			}
		}
		for _, err := range g.together(check("a"), check("b")) {
			require.ErrorContains(t, err, "nested call")
		}
	})
}

// goroutine returns the line of the stack that has the goroutine's number.
func goroutine() string {
	stack := make([]byte, 64)
	name, _, _ := strings.Cut(string(stack[:runtime.Stack(stack, false)]), "[")
	return name
}

// No value and no error leaves the group before its outcome is known: both rest on what the
// calls before wrote.
func TestGroup_AnswersNoMemberBeforeItsOutcome(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		inCommit, go_on := make(chan struct{}), make(chan struct{})
		commits := 0
		g.store.SetFaults(memory.Faults{Commit: func(storage.InDoubt) memory.Fate {
			if commits++; commits == 2 {
				close(inCommit)
				<-go_on
			}
			return memory.Normal
		}})
		errs, done := g.queue(g.do("a", put("k", "a")), g.do("fails", fails(put("k", "b"))), g.do("panics", func(context.Context, *memory.Tx) error { panic("boom") }), g.do("c", put("k", "c")))
		<-inCommit
		synctest.Wait()
		require.Empty(t, g.done)
		close(go_on)
		<-done
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], errShop)
		require.ErrorIs(t, errs[2], errGone)
		require.NoError(t, errs[3])
	})
}

// One member's error, panic or end is its own.
func TestGroup_AMemberFailsAlone(t *testing.T) {
	ends := map[string]function{
		"error": fails(put("k", "x")),
		"panic": func(ctx context.Context, tx *memory.Tx) error { _ = put("k", "x")(ctx, tx); panic("boom") },
		"Goexit": func(ctx context.Context, tx *memory.Tx) error {
			_ = put("k", "x")(ctx, tx)
			runtime.Goexit()
			return nil
		},
	}
	for how, fn := range ends {
		for place := range 3 {
			t.Run(fmt.Sprint(how, place), func(t *testing.T) {
				inGroup(t, func(t *testing.T, g *group) {
					calls := []call{g.do("0", put("k", "0")), g.do("1", put("k", "1")), g.do("2", put("k", "2"))}
					calls[place] = g.do("fails", fn)
					errs := g.together(calls...)
					want := ""
					for i, err := range errs {
						if i == place {
							require.Error(t, err)
							require.Equal(t, how == "error", errors.Is(err, errShop))
							require.Equal(t, how != "error", errors.Is(err, errGone))
						} else {
							require.NoError(t, err)
							want += strconv.Itoa(i)
						}
					}
					require.Equal(t, want, g.store.Read("k"))
					require.Equal(t, []string{strings.Join(strings.Split(want, ""), " ")}, g.history(), "the history has those that took effect")
				})
			})
		}
	}
}

// If no member succeeds the fence doesn't move, and the errors stand.
func TestGroup_WithoutASuccessMovesNothing(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		for _, err := range g.together(g.do("a", fails(put("k", "a"))), g.do("b", fails(put("k", "b")))) {
			require.ErrorIs(t, err, errShop)
		}
		require.Empty(t, g.history())
		require.Empty(t, g.store.Read("k"))
	})
}

// A member that has succeeded can't be undone: the end of its context has no effect any more.
func TestGroup_ContextOfAMemberThatSucceededHasNoEffect(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		ctx, cancel := context.WithCancel(t.Context())
		first := g.do("a", put("k", "a"))
		errs := g.together(
			func(context.Context) error { return first(ctx) },
			g.do("b", func(c context.Context, tx *memory.Tx) error {
				cancel()
				synctest.Wait()
				return put("k", "b")(c, tx)
			}),
		)
		require.Equal(t, []error{nil, nil}, errs)
		require.Equal(t, "ab", g.store.Read("k"))
	})
}

// A member whose context has ended before its function returns is undone alone, and a call
// whose context ends in the queue doesn't join.
func TestGroup_ContextOfAMemberEndsIt(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		running, stop := context.WithCancel(t.Context())
		waiting, leave := context.WithCancel(t.Context())
		ends := g.do("ends", func(ctx context.Context, tx *memory.Tx) error {
			stop()
			leave()
			synctest.Wait()
			return put("k", "x")(ctx, tx)
		})
		waits := g.do("waits", put("k", "y"))
		errs := g.together(g.do("a", put("k", "a")),
			func(context.Context) error { return ends(running) },
			func(context.Context) error { return waits(waiting) },
			g.do("b", put("k", "b")))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], context.Canceled)
		require.ErrorIs(t, errs[2], context.Canceled)
		require.NoError(t, errs[3])
		require.Equal(t, "ab", g.store.Read("k"))
		require.Equal(t, []string{"a", "ends", "b"}, g.ran)
	})
}

// doubt makes the COMMIT of the group, the second one, in doubt.
func (g *group) doubt(fate memory.Fate, resolve func() error) {
	commits := 0
	g.store.SetFaults(memory.Faults{
		Commit: func(storage.InDoubt) memory.Fate {
			if commits++; commits == 2 {
				return fate
			}
			return memory.Normal
		},
		Resolve: func(storage.InDoubt) error {
			if resolve != nil {
				return resolve()
			}
			return nil
		},
	})
}

// What a failure of the whole means: members that succeeded, that failed on their own ground,
// and that failed after another one had succeeded.
func TestGroup_CommitThatWasNotApplied(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		g.doubt(memory.RequestLost, nil)
		errs := g.together(g.do("own", fails(put("k", "x"))), g.do("a", put("k", "a")), g.do("rests", fails(put("k", "y"))), g.do("again", put("k", "b"), guard.Retryable()))
		require.ErrorIs(t, errs[0], errShop)
		for _, err := range errs[1:3] {
			require.NotErrorIs(t, err, errShop, "its reason is gone with the other's write")
			require.NotErrorIs(t, err, guard.ErrUnknownOutcome)
			require.True(t, guard.SafeToRetry(err), err)
		}
		require.NoError(t, errs[3])
		require.Equal(t, "b", g.store.Read("k"))
		require.Equal(t, []string{"own", "a", "rests", "again", "again"}, g.ran, "nothing ran again but what may")
		require.Equal(t, []string{"again"}, g.history())
	})
}

func TestGroup_CommitInDoubtThatWasApplied(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		g.doubt(memory.ReplyLost, nil)
		errs := g.together(g.do("a", put("k", "a")), g.do("fails", fails(put("k", "x"))), g.do("b", put("k", "b"), guard.Retryable()))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], errShop)
		require.NoError(t, errs[2])
		require.Equal(t, "ab", g.store.Read("k"))
		require.Len(t, g.ran, 3)
	})
}

func TestGroup_UnknownOutcome(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		away := true
		g.doubt(memory.Late, func() error {
			if away {
				return errShop
			}
			return nil
		})
		errs := g.together(g.do("own", fails(put("k", "x"))), g.do("a", put("k", "a"), guard.Retryable()), g.do("rests", fails(put("k", "y"))), g.do("b", put("k", "b")))
		require.ErrorIs(t, errs[0], errShop)
		for i, name := range map[int]string{1: "a", 3: "b"} {
			unknown := new(guard.UnknownOutcomeError)
			require.ErrorAs(t, errs[i], &unknown)
			require.Equal(t, name, unknown.Record.Name)
		}
		require.NotErrorIs(t, errs[2], guard.ErrUnknownOutcome)
		require.NotErrorIs(t, errs[2], errShop)
		require.True(t, guard.SafeToRetry(errs[2]))
		require.Len(t, g.ran, 4, "what may have taken effect doesn't run again")
		away = false
		require.NoError(t, g.do("next", put("k", "c"))(t.Context()), "it settles the doubt first")
		g.store.Deliver()
		require.Equal(t, "c", g.store.Read("k"))
	})
}

// A rejection at the seal is that of each member that succeeded.
func TestGroup_SupersededAtTheSeal(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		errs := g.together(
			g.do("a", put("k", "a")),
			g.do("superseding", func(ctx context.Context, _ *memory.Tx) error {
				grant := guard.Grants(ctx)[0]
				grant.Token = 100
				g.locks.SetToken(101)
				_, err := g.store.Claim(ctx, storage.Claim{Grant: grant})
				return err
			}),
			g.do("rests", fails(put("k", "x"))),
			g.do("again", put("k", "b"), guard.Retryable()),
		)
		require.ErrorIs(t, errs[0], guard.ErrStaleToken)
		require.ErrorIs(t, errs[1], guard.ErrStaleToken)
		require.True(t, guard.SafeToRetry(errs[2]))
		require.NotErrorIs(t, errs[2], errShop)
		require.NoError(t, errs[3], "under another grant")
		require.Equal(t, "b", g.store.Read("k"))
	})
}

// One member's function ends the transaction for all.
func TestGroup_AMemberEndsTheTransaction(t *testing.T) {
	for name, end := range map[string]error{"by COMMIT": guard.ErrTxEnded, "by losing the connection": errors.New("connection lost")} {
		t.Run(name, func(t *testing.T) {
			inGroup(t, func(t *testing.T, g *group) {
				errEnds := errors.New("ends it")
				g.store.SetFaults(memory.Faults{Member: func(err error) error {
					if errors.Is(err, errEnds) {
						return end
					}
					return nil
				}})
				ending := errEnds
				if end == guard.ErrTxEnded {
					ending = errors.Join(errEnds, guard.ErrTxEnded)
				}
				errs := g.together(
					g.do("own", fails(put("k", "x"))),
					g.do("a", put("k", "a"), guard.Retryable()),
					g.do("rests", fails(put("k", "y"))),
					g.do("ends", func(context.Context, *memory.Tx) error { return ending }),
					g.do("not yet", put("k", "b")),
					g.do("nor this", put("k", "c")),
				)
				require.ErrorIs(t, errs[0], errShop)
				require.NotErrorIs(t, errs[2], errShop)
				require.True(t, guard.SafeToRetry(errs[2]), errs[2])
				require.NoError(t, errs[4])
				require.NoError(t, errs[5])
				if end == guard.ErrTxEnded {
					require.ErrorIs(t, errs[1], guard.ErrTxEnded, "what it wrote may stay")
					require.ErrorIs(t, errs[3], guard.ErrTxEnded)
					require.Equal(t, []string{"own", "a", "rests", "ends", "not yet", "nor this"}, g.ran)
					require.Equal(t, []string{"not yet nor this"}, g.history())
				} else {
					require.NoError(t, errs[1])
					require.NotErrorIs(t, errs[3], errEnds)
					require.True(t, guard.SafeToRetry(errs[3]))
					require.Equal(t, []string{"own", "a", "rests", "ends", "a", "not yet", "nor this"}, g.ran, "what runs again is first in the queue")
					require.Equal(t, []string{"a", "not yet nor this"}, g.history())
				}
			})
		})
	}
}

// A call whose function has not run is in no run, whatever becomes of the group.
func TestGroup_CallsThatDidNotRunCountNoRun(t *testing.T) {
	var mu sync.Mutex
	runs := map[string]int{}
	cfg := &guard.Config{MaxBatch: 10, Observers: []*guard.Observer{{Finished: func(_ context.Context, o guard.Operation) {
		mu.Lock()
		defer mu.Unlock()
		runs[o.Record.Name] = o.Runs
	}}}}
	inGroupOf(t, cfg, func(t *testing.T, g *group) {
		lost := false
		g.store.SetFaults(memory.Faults{Member: func(error) error {
			if !lost {
				lost = true
				return errors.New("connection lost")
			}
			return nil
		}})
		g.together(g.do("a", put("k", "a"), guard.Retryable()), g.do("b", put("k", "b")))
		require.Equal(t, map[string]int{"first": 1, "a": 2, "b": 1}, runs)
		require.Equal(t, "ab", g.store.Read("k"))
	})
}

// A key takes effect once, also if both calls are in the queue: neither sees the other's.
func TestGroup_SameKeyTwiceTakesEffectOnce(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		errs := g.together(g.once("a", "k1", put("k", "a")), g.once("b", "k2", put("k", "b")), g.once("a", "k1", put("k", "a")), g.do("c", put("k", "c")))
		require.Equal(t, make([]error, 4), errs)
		require.Equal(t, "abc", g.store.Read("k"))
		require.Equal(t, []string{"a b", "c"}, g.history(), "the second of a key closes the group, and the order is kept")
		require.Equal(t, []string{"a", "b", "c"}, g.ran)
	})
}

// The key of a member that failed is not kept: a repeat runs.
func TestGroup_KeyOfAFailedMemberIsNotKept(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		errs := g.together(g.do("a", put("k", "a")), g.once("b", "k1", fails(put("k", "x"))), g.once("c", "k2", put("k", "c")))
		require.ErrorIs(t, errs[1], errShop)
		require.NoError(t, g.once("b", "k1", put("k", "b"))(t.Context()))
		require.NoError(t, g.once("c", "k2", put("k", "x"))(t.Context()))
		require.Equal(t, "acb", g.store.Read("k"))
	})
}

// A result that can't be kept fails its member while that can still be undone.
func TestGroup_ResultThatCannotBeKeptFailsItsMember(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		errs := g.together(g.do("a", put("k", "a")), func(ctx context.Context) error {
			_, err := guard.Value(ctx, g.guard, sku, func(ctx context.Context, tx *memory.Tx) (chan int, error) {
				return make(chan int), put("k", "x")(ctx, tx)
			}, guard.Once("k1", nil))
			return err
		}, g.do("b", put("k", "b")))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], guard.ErrInvalid)
		require.NoError(t, errs[2])
		require.Equal(t, "ab", g.store.Read("k"))
	})
}

// A repeated call's answer needs the group's COMMIT, also if all others failed.
func TestGroup_RepeatedAnswersAreSealed(t *testing.T) {
	repeated := func(g *group) call { return g.once("repeated", "k1", put("k", "x")) }
	inGroup(t, func(t *testing.T, g *group) {
		require.NoError(t, g.once("before", "k1", put("k", "a"))(t.Context()))
		errs := g.together(g.do("fails", fails(put("k", "y"))), repeated(g))
		require.ErrorIs(t, errs[0], errShop)
		require.NoError(t, errs[1])
		require.Equal(t, "a", g.store.Read("k"))
		entries, err := g.store.Entries(t.Context(), sku, 0, 10)
		require.NoError(t, err)
		require.Len(t, entries, 4, "claim, before, first, the group")
	})
}

func TestGroup_RepeatedAnswerOfAStaleGrantIsRejected(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		require.NoError(t, doOnce(t.Context(), g.guard, sku, put("k", "a"), guard.Once("k1", nil)))
		errs, done := g.queue(g.do("a", func(ctx context.Context, _ *memory.Tx) error {
			grant := guard.Grants(ctx)[0]
			grant.Token++
			_, err := g.store.Claim(ctx, storage.Claim{Grant: grant})
			return errors.Join(err, errShop)
		}), g.once("repeated", "k1", put("k", "x")))
		<-done
		require.ErrorIs(t, errs[0], errShop)
		require.ErrorIs(t, errs[1], guard.ErrStaleToken)
	})
}

// A key that was not looked up before the transaction began can't join, so that its call
// can't miss what the group doesn't know.
func TestGroup_KeyThatCameTooLateDoesNotJoin(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		require.NoError(t, g.once("before", "k1", put("k", "a"))(t.Context()))
		late := make(chan error, 1)
		errs := g.together(
			g.do("b", func(ctx context.Context, tx *memory.Tx) error {
				go func() { late <- g.once("late", "k1", put("k", "x"))(t.Context()) }()
				synctest.Wait()
				return put("k", "b")(ctx, tx)
			}),
			g.do("c", put("k", "c")))
		require.Equal(t, make([]error, 2), errs)
		require.NoError(t, <-late)
		require.Equal(t, "abc", g.store.Read("k"))
	})
}

// A key of another request is its call's own error.
func TestGroup_KeyOfAnotherRequestFailsAlone(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		require.NoError(t, doOnce(t.Context(), g.guard, sku, put("k", "a"), guard.Once("k1", []byte("another"))))
		errs := g.together(g.do("b", put("k", "b")), g.once("reused", "k1", put("k", "x")), g.do("c", put("k", "c")))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], guard.ErrKeyReused)
		require.NoError(t, errs[2])
		require.Equal(t, "abc", g.store.Read("k"))
	})
}

// A function that hangs ends its group: COMMIT was not sent. Those before it don't wait for
// it, and those behind it run when it has gone.
func TestGroup_MaxRunEndsTheGroup(t *testing.T) {
	inGroupOf(t, &guard.Config{MaxBatch: 10, MaxRun: time.Second}, func(t *testing.T, g *group) {
		b := g.process("b", nil)
		errs, done := g.queue(
			g.do("a", put("k", "a")),
			g.do("again", put("k", "b"), guard.Retryable()),
			g.do("hangs", func(ctx context.Context, tx *memory.Tx) error { time.Sleep(time.Minute); return put("k", "x")(ctx, tx) }),
			g.do("not yet", put("k", "c")),
		)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"0"}, g.done)
		require.True(t, guard.SafeToRetry(errs[0]), errs[0])
		require.NotErrorIs(t, errs[0], context.DeadlineExceeded, "that was another call's")
		require.NoError(t, guard.Do(t.Context(), b, sku, put("k", "other process")))
		<-done
		require.NoError(t, errs[1])
		require.Error(t, errs[2])
		require.NoError(t, errs[3])
		require.Equal(t, "other processbc", g.store.Read("k"))
	})
}

func TestGroup_CloseEndsTheGroup(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		own, err := guard.New(g.locks.NewLocker("closing"), g.store, &guard.Config{MaxBatch: 10})
		require.NoError(t, err)
		g.guard = own
		errs, done := g.queue(
			g.do("a", put("k", "a"), guard.Retryable()),
			g.do("deaf", func(context.Context, *memory.Tx) error { time.Sleep(time.Minute); return nil }),
			g.do("waits", put("k", "b")))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, own.Close(ctx))
		synctest.Wait()
		require.ErrorIs(t, errs[0], guard.ErrClosed)
		require.ErrorIs(t, errs[2], guard.ErrClosed)
		require.False(t, guard.SafeToRetry(errs[0]))
		<-done
		require.Empty(t, g.store.Read("k"))
		require.NoError(t, own.Close(t.Context()))
	})
}

// A Hold, and a call for several resources, close the group: the order is that of the queue.
func TestGroup_OtherCallsCloseIt(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		errs := g.together(
			g.do("a", put("k", "a")),
			g.do("b", put("k", "b")),
			func(ctx context.Context) error {
				return guard.Hold(ctx, g.guard, sku, func(ctx context.Context, h held) error {
					return guard.Do(ctx, h, sku, put("k", "h"), guard.Name("hold"))
				})
			},
			g.do("c", put("k", "c")),
			func(ctx context.Context) error {
				return guard.Do(ctx, g.guard, []string{sku, "sku/43"}, put("k", "2"), guard.Name("two"))
			},
			g.do("d", put("k", "d")),
		)
		require.Equal(t, make([]error, 6), errs)
		require.Equal(t, "abhc2d", g.store.Read("k"))
		require.Equal(t, []string{"a b", "hold", "c", "two", "d"}, g.history())
	})
}

// MaxHold bounds how long calls may join, and another process waits for it and one group.
func TestGroup_MaxHoldBoundsIt(t *testing.T) {
	inGroupOf(t, &guard.Config{MaxBatch: 10, MaxHold: 10 * time.Millisecond}, func(t *testing.T, g *group) {
		b := g.process("b", nil)
		var calls []call
		for range 9 {
			calls = append(calls, g.do("n", sleeping(4*time.Millisecond)))
		}
		other := make(chan error, 1)
		go func() {
			time.Sleep(time.Millisecond)
			other <- guard.Do(t.Context(), b, sku, put("k", g.store.Read("n")))
		}()
		_, done := g.queue(calls...)
		require.NoError(t, <-other)
		<-done
		require.Equal(t, []string{"n n n", "", "n n n", "n n n"}, g.history())
	})
}

// A lease that is lost closes the group; the fence decides about what has run.
func TestGroup_ALostLeaseClosesIt(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		errs := g.together(
			g.do("a", func(ctx context.Context, tx *memory.Tx) error {
				g.locks.Lose(sku)
				<-ctx.Done()
				return fence.ErrLeaseLost
			}),
			g.do("b", put("k", "b")))
		require.ErrorIs(t, errs[0], fence.ErrLeaseLost)
		require.NoError(t, errs[1])
		require.Equal(t, []string{"b"}, g.history())
	})
}

// The store doesn't return from COMMIT. Its caller's goroutine ends as the store wants; the
// others have to know that their outcome is unknown, and go on.
func TestGroup_StoreThatDoesNotReturnFromCommit(t *testing.T) {
	for how, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(how, func(t *testing.T) {
			inGroup(t, func(t *testing.T, g *group) {
				ending := &endingOnce{end: end}
				own, err := guard.New(g.locks.NewLocker("a"), endingStore{g.store, ending}, &guard.Config{MaxBatch: 10})
				require.NoError(t, err)
				g.guard = own
				errs := g.together(g.do("a", put("k", "a")), g.do("b", func(context.Context, *memory.Tx) error { ending.at = "Commit"; return nil }))
				require.ErrorIs(t, errs[0], guard.ErrUnknownOutcome)
				require.ErrorIs(t, errs[1], errGone)
				unknown := new(guard.UnknownOutcomeError)
				require.ErrorAs(t, errs[0], &unknown)
				_, err = unknown.Resolve(t.Context())
				require.Error(t, err)
				require.NoError(t, g.do("next", put("k", "c"))(t.Context()))
				require.NoError(t, own.Close(t.Context()))
			})
		})
	}
}

// The store may say that no member may follow, as after a setting that it would have.
func TestGroup_EndsAtTheLastMember(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		own, err := guard.New(g.locks.NewLocker("a"), lastStore{g.store}, &guard.Config{MaxBatch: 10})
		require.NoError(t, err)
		g.guard = own
		require.Equal(t, make([]error, 2), g.together(g.do("a", put("k", "a")), g.do("b", put("k", "b"))))
		require.Equal(t, []string{"a", "b"}, g.history())
		require.NoError(t, own.Close(t.Context()))
	})
}

// lastStore lets one member run.
type lastStore struct{ *memory.Store }

type lastTxn struct{ storage.Txn[*memory.Tx] }

func (s lastStore) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*memory.Tx], error) {
	txn, err := s.Store.Begin(ctx, claims...)
	return lastTxn{txn}, err
}

func (lastTxn) Last() bool { return true }

// The database ended the transaction because the grant is stale. Each member learns that, and
// none the error of another one.
func TestGroup_RejectedWhileAMemberRan(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		g.store.SetFaults(memory.Faults{Member: func(err error) error {
			if rejected := new(guard.RejectedError); errors.As(err, &rejected) {
				return err
			}
			return nil
		}})
		errs := g.together(g.do("a", put("k", "a")), g.do("rejected", func(ctx context.Context, _ *memory.Tx) error {
			return &guard.RejectedError{Reason: storage.ReasonStale, Stage: storage.StageRun, Grant: guard.Grants(ctx)[0], Err: errShop}
		}))
		require.ErrorIs(t, errs[0], guard.ErrStaleToken)
		require.NotErrorIs(t, errs[0], errShop)
		require.ErrorIs(t, errs[1], guard.ErrStaleToken)
	})
}

// A member whose function panicked is Retryable, and the group didn't commit: its goroutine is
// gone, and must not keep a place in the queue.
func TestGroup_AMemberThatIsGoneDoesNotQueueAgain(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		g.doubt(memory.RequestLost, nil)
		errs := g.together(
			g.do("a", put("k", "a"), guard.Retryable()),
			g.do("panics", func(context.Context, *memory.Tx) error { panic("boom") }, guard.Retryable()))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], errGone)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, g.do("next", put("k", "b"))(ctx))
	})
}

// Where all members see one snapshot, a call that comes later has a transaction of its own: it
// must not miss what was committed before it came.
func TestGroup_ALaterCallDoesNotJoinAnEarlierSnapshot(t *testing.T) {
	inGroup(t, func(t *testing.T, g *group) {
		own, err := guard.New(g.locks.NewLocker("a"), snapshotStore{g.store}, &guard.Config{MaxBatch: 10})
		require.NoError(t, err)
		g.guard = own
		late := make(chan error, 1)
		errs := g.together(g.do("a", func(ctx context.Context, tx *memory.Tx) error {
			go func() { late <- g.do("late", put("k", "c"))(t.Context()) }()
			synctest.Wait()
			return put("k", "a")(ctx, tx)
		}), g.do("b", put("k", "b")))
		require.Equal(t, make([]error, 2), errs)
		require.NoError(t, <-late)
		require.Equal(t, []string{"a b", "late"}, g.history())
		require.NoError(t, own.Close(t.Context()))
	})
}

// snapshotStore says that the members of a transaction see one snapshot.
type snapshotStore struct{ *memory.Store }

type snapshotTxn struct{ storage.Txn[*memory.Tx] }

func (s snapshotStore) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[*memory.Tx], error) {
	txn, err := s.Store.Begin(ctx, claims...)
	return snapshotTxn{txn}, err
}

func (snapshotTxn) OneSnapshot() bool { return true }
