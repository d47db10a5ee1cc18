package guard_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// batchOp is a storage.BatchOp of the memory store.
type batchOp struct {
	run   function
	runs  int
	alone bool
}

func (b *batchOp) Run(ctx context.Context, tx *memory.Tx) error { b.runs++; return b.run(ctx, tx) }
func (b *batchOp) Shares() bool                                 { return !b.alone }

// batch is a call with a batch.
func (g *group) batch(name string, fn function, opts ...guard.ValueOption) call {
	return func(ctx context.Context) error {
		return guard.Exec(ctx, g.guard, sku, &batchOp{run: g.noting(name, fn)}, append(opts, guard.Name(name))...)
	}
}

func TestBatch_CallsThatWaitShareATransaction(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		errs := g.together(g.batch("a", put("k", "a")), g.batch("b", put("k", "b")), g.do("f", put("k", "f")), g.batch("c", put("k", "c")), g.batch("d", put("k", "d")))
		require.Equal(t, make([]error, 5), errs)
		require.Equal(t, "abfcd", g.store.Read("k"), "in the order of the queue")
		require.Equal(t, []string{"a b", "f", "c d"}, g.history())
	})
}

// Its result is kept before the transaction commits, so it has one of its own.
func TestBatch_WithOnceHasATransactionOfItsOwn(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		once := func(ctx context.Context) error {
			return guard.Exec(ctx, g.guard, sku, &counting{}, guard.Once("k1", nil), guard.Name("once"))
		}
		require.Equal(t, make([]error, 3), g.together(g.batch("a", put("k", "a")), once, g.batch("b", put("k", "b"))))
		require.Equal(t, []string{"a", "once", "b"}, g.history())
	})
}

// If one fails, nothing has happened: it runs alone, in its place in the queue, and its
// error is that of its own run. Those before it and those behind it share transactions again.
func TestBatch_ThatFailsRunsAlone(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		errs := g.together(g.batch("a", put("k", "a")), g.batch("b", put("k", "b")), g.batch("fails", fails(put("k", "x"))),
			g.batch("c", put("k", "c")), g.batch("d", put("k", "d")), g.do("f", put("k", "f")))
		require.ErrorIs(t, errs[2], errShop)
		errs[2] = nil
		require.Equal(t, make([]error, 6), errs)
		require.Equal(t, "abcdf", g.store.Read("k"))
		require.Equal(t, []string{"a b", "c d", "f"}, g.history())
		require.Equal(t, "a b fails a b fails c d f", strings.Join(g.ran, " "))
	})
}

// A call that is to share another transaction waits in the queue meanwhile: it can leave, and
// the end of the Guard ends its waiting.
func TestBatch_WaitsToShareAgain(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(g *group, cancel context.CancelFunc)
		want error
	}{
		"its context ends":    {func(_ *group, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"the Guard is closed": {func(g *group, _ context.CancelFunc) { go func() { _ = g.guard.Close(context.Background()) }() }, guard.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupOf(t, nil, func(t *testing.T, g *group) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				left := make(chan struct{})
				runs := 0
				failsSlowly := func(context.Context, *memory.Tx) error {
					if runs++; runs == 2 { // alone
						test.end(g, cancel)
						<-left
					}
					return errShop
				}
				leaves := func(context.Context) error {
					defer close(left)
					return g.batch("c", put("k", "c"))(ctx)
				}
				errs := g.together(g.batch("a", put("k", "a")), g.batch("fails", failsSlowly), leaves)
				require.NoError(t, errs[0])
				require.ErrorIs(t, errs[1], errShop)
				require.ErrorIs(t, errs[2], test.want)
				require.Equal(t, "a", g.store.Read("k"))
			})
		})
	}
}

// If the store doesn't know which one failed, each runs alone, in their order.
func TestBatch_ThatFailsRunsEachAlone(t *testing.T) {
	inAcross(t, func(t *testing.T, a *across) {
		a.gate.blind = true
		errs := a.meet(a.named("k", "a", put("k", "a")), a.named("k", "fails", fails(put("k", "x"))), a.named("k", "b", put("k", "b")))
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], errShop)
		require.NoError(t, errs[2])
		require.Equal(t, "ab", a.store.Read("k"))
		require.Equal(t, "a fails a fails b", strings.Join(a.ran, " "))
		a.meet(a.named("k", "c", put("k", "c")), a.named("k", "d", put("k", "d")))
		require.Equal(t, "c", a.writes("k")[2].ops, "for a while there is none of several")
	})
}

// Where failures are the rule calls don't fail together first, but for now and then.
func TestBatch_BacksOffWhereFailuresAreTheRule(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		var calls []call
		for _, name := range []string{"1", "2", "3", "4"} {
			calls = append(calls, g.batch(name, fails(put("k", "x"))))
		}
		errs := g.together(append(calls, g.batch("a", put("k", "a")), g.batch("b", put("k", "b")), g.batch("c", put("k", "c")))...)
		require.Equal(t, make([]error, 3), errs[4:])
		require.Equal(t, "1 1 2 2 3 4 a b c", strings.Join(g.ran, " "))
		require.Equal(t, []string{"a", "b", "c"}, g.history())
	})
}

// A batch that failed alone runs again with the turn that it has.
func TestBatch_RunsAgainIfItMay(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		failed := false
		once := func(ctx context.Context, tx *memory.Tx) error {
			if !failed {
				failed = true
				return temporaryError{}
			}
			return put("k", "a")(ctx, tx)
		}
		require.NoError(t, g.batch("a", once, guard.Retryable())(t.Context()))
		require.Equal(t, []string{"a", "a"}, g.ran)
		require.Equal(t, "a", g.store.Read("k"))
	})
}

func TestBatch_CommitThatWasNotApplied(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		g.doubt(memory.RequestLost, nil)
		require.Equal(t, make([]error, 2), g.together(g.batch("a", put("k", "a")), g.batch("b", put("k", "b"))))
		require.Equal(t, "ab", g.store.Read("k"))
		require.Equal(t, []string{"a", "b", "a", "b"}, g.ran)
	})
}

func TestBatch_UnknownOutcome(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		away := true
		g.doubt(memory.Late, func() error {
			if away {
				return errShop
			}
			return nil
		})
		errs := g.together(g.batch("a", put("k", "a")), g.batch("b", put("k", "b")))
		for i, name := range []string{"a", "b"} {
			unknown := new(guard.UnknownOutcomeError)
			require.ErrorAs(t, errs[i], &unknown)
			require.Equal(t, name, unknown.Record.Name)
		}
		require.Equal(t, []string{"a", "b"}, g.ran, "what may have taken effect doesn't run again")
		away = false
		require.NoError(t, g.batch("c", put("k", "c"))(t.Context()))
		g.store.Deliver()
		require.Equal(t, "c", g.store.Read("k"))
	})
}

// SQL of one ended the transaction: what was written may stay.
func TestBatch_ThatEndsTheTransactionRunsNothingAgain(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		ends := func(context.Context, *memory.Tx) error { return guard.ErrTxEnded }
		for _, err := range g.together(g.batch("a", put("k", "a")), g.batch("ends", ends), g.batch("b", put("k", "b"))) {
			require.ErrorIs(t, err, guard.ErrTxEnded)
		}
		require.Equal(t, []string{"a", "ends"}, g.ran)
	})
}

// A grant that was superseded is one failure more: each runs under another grant.
func TestBatch_SupersededRunsEachUnderAnotherGrant(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		superseded := false
		errs := g.together(g.batch("a", put("k", "a")), g.batch("b", func(ctx context.Context, tx *memory.Tx) error {
			if !superseded {
				superseded = true
				grant := guard.Grants(ctx)[0]
				grant.Token = 100
				g.locks.SetToken(101)
				if _, err := g.store.Claim(ctx, storage.Claim{Grant: grant}); err != nil {
					return err
				}
			}
			return put("k", "b")(ctx, tx)
		}))
		require.Equal(t, make([]error, 2), errs)
		require.Equal(t, "ab", g.store.Read("k"))
	})
}

// A call that another one has taken into its transaction waits for that: it may take effect.
func TestBatch_ContextOfOneThatWasTakenHasNoEffect(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		ctx, cancel := context.WithCancel(t.Context())
		second := g.batch("b", put("k", "b"))
		errs := g.together(g.batch("a", func(c context.Context, tx *memory.Tx) error {
			cancel()
			synctest.Wait()
			return put("k", "a")(c, tx)
		}), func(context.Context) error { return second(ctx) })
		require.Equal(t, make([]error, 2), errs)
		require.Equal(t, "ab", g.store.Read("k"))
	})
}

func TestBatch_StoreThatDoesNotReturn(t *testing.T) {
	for step, end := range map[string]func(){"Commit": func() { panic("boom") }, "Begin": runtime.Goexit} {
		t.Run(step, func(t *testing.T) {
			inGroupOf(t, nil, func(t *testing.T, g *group) {
				ending := &endingOnce{end: end}
				own, err := guard.New(g.locks.NewLocker("a"), endingStore{g.store, ending}, nil)
				require.NoError(t, err)
				g.guard = own
				_, done := g.queue(func(ctx context.Context) error {
					return guard.Do(ctx, own, sku, func(context.Context, *memory.Tx) error { return nil })
				})
				<-done
				errs := g.together(g.do("f", func(context.Context, *memory.Tx) error { ending.at = step; return nil }),
					g.batch("a", put("k", "a")), g.batch("b", put("k", "b")))
				if step == "Commit" {
					require.ErrorIs(t, errs[0], errGone, "the function's own COMMIT")
					require.NoError(t, errs[1])
				} else {
					require.ErrorIs(t, errs[1], errGone)
				}
				require.NoError(t, errs[2], "nothing was sent, and it runs alone")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.NoError(t, g.batch("next", put("k", "c"))(ctx))
				require.NoError(t, own.Close(t.Context()))
			})
		})
	}
}

// The store panics at the COMMIT of a transaction that calls share.
func TestBatch_StoreThatPanicsAtCommit(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		ending := &endingOnce{end: func() { panic("boom") }}
		own, err := guard.New(g.locks.NewLocker("a"), endingStore{g.store, ending}, nil)
		require.NoError(t, err)
		g.guard = own
		errs := g.together(g.batch("a", func(context.Context, *memory.Tx) error { ending.at = "Commit"; return nil }), g.batch("b", put("k", "b")))
		require.ErrorIs(t, errs[0], errGone)
		require.ErrorIs(t, errs[1], guard.ErrUnknownOutcome)
		require.NoError(t, g.batch("next", put("k", "c"))(t.Context()))
		require.NoError(t, own.Close(t.Context()))
	})
}

var _ storage.BatchOp[*memory.Tx] = (*batchOp)(nil)

// Close lets a transaction that is under way end, and fails those that would run again.
func TestBatch_CloseFailsWhatWouldRunAgain(t *testing.T) {
	inGroupOf(t, nil, func(t *testing.T, g *group) {
		own, err := guard.New(g.locks.NewLocker("closing"), g.store, nil)
		require.NoError(t, err)
		g.guard = own
		errs, done := g.queue(g.batch("a", func(context.Context, *memory.Tx) error { time.Sleep(time.Second); return errShop }), g.batch("b", put("k", "b")))
		time.Sleep(time.Millisecond)
		require.NoError(t, own.Close(t.Context()))
		<-done
		require.True(t, errors.Is(errs[0], errShop) || errors.Is(errs[0], guard.ErrClosed), errs[0])
		require.ErrorIs(t, errs[1], guard.ErrClosed)
	})
}
