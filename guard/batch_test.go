package guard_test

import (
	"context"
	"errors"
	"strconv"
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

// group is a test of calls that queue while another call runs. Batches then share a transaction.
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

// Two batches share a transaction of 4 ms. After 1 ms another process waits for the resource.
// Unless the callers call again, it gets the resource 0.5 ms after they are answered.
func TestLinger_KeepsTheResourceForCallersThatWereAnsweredTogether(t *testing.T) {
	for name, test := range map[string]struct {
		hold   time.Duration // how long calls may still begin; 0: the default
		again  bool
		close  bool
		writes string        // in order; which calls of "again" share a transaction depends on when they run
		at     time.Duration // when the other process is done
	}{
		"they call again":     {again: true, writes: "a b a b other", at: 4*time.Millisecond + 500*time.Microsecond},
		"they don't":          {writes: "a b other", at: 4*time.Millisecond + 500*time.Microsecond},
		"its time is over":    {hold: 2 * time.Millisecond, writes: "a b other", at: 4 * time.Millisecond},
		"its time ends first": {hold: 3200 * time.Microsecond, writes: "a b other", at: 4*time.Millisecond + 200*time.Microsecond},
		"the Guard closes":    {close: true, writes: "a b other", at: 4 * time.Millisecond},
		"one call alone":      {writes: "h other", at: 4 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inGroupOf(t, nil, func(t *testing.T, g *group) {
				if test.hold > 0 {
					guard.SetMaxHold(g.guard, test.hold)
				}
				start, b := time.Now(), g.process("b", nil)
				var at time.Duration
				other := make(chan error, 1)
				go func() {
					time.Sleep(time.Millisecond)
					err := guard.Do(t.Context(), b, sku, put("k", "o"), guard.Name("other"))
					at = time.Since(start)
					other <- err
				}()
				if test.close {
					go func() {
						time.Sleep(2 * time.Millisecond)
						_ = g.guard.Close(context.Background())
					}()
				}
				again := func(c call) call {
					return func(ctx context.Context) error {
						err := c(ctx)
						if err == nil && test.again {
							err = c(ctx)
						}
						return err
					}
				}
				slowly := sleeping(4 * time.Millisecond)
				if test.again {
					slept := false
					slowly = func(ctx context.Context, tx *memory.Tx) error {
						if !slept {
							slept = true
							return sleeping(4*time.Millisecond)(ctx, tx)
						}
						return nil
					}
				}
				calls := []call{again(g.batch("a", slowly)), again(g.batch("b", put("k", "b")))}
				if name == "one call alone" {
					calls = []call{g.batch("h", slowly)}
				}
				for _, err := range g.together(calls...) {
					require.NoError(t, err)
				}
				require.NoError(t, <-other)
				require.Equal(t, test.at, at)
				wrote := strings.Join(g.history(), " ")
				if test.again {
					wrote = strings.Replace(wrote, " b a other", " a b other", 1)
				}
				require.Equal(t, test.writes, wrote)
				require.Equal(t, 2, g.locks.Grants())
			})
		})
	}
}
