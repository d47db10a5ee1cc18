package guard_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// batches is a test of calls with batches. Those that arrive while the store has no connection share a transaction.
type batches struct {
	*world
	guard *guard.Guard[*memory.Tx]
	db    *hookedStore
	mu    sync.Mutex
	ran   []string // functions that began, in order; guarded by mu while any runs

	gate   chan struct{} // the store has no connection until it is closed
	ending *endingOnce   // ends a goroutine at a step of the store; or nil
	blind  bool          // the store doesn't say which operation has failed
}

type (
	function = func(ctx context.Context, tx *memory.Tx) error
	call     = func(ctx context.Context) error
)

func inBatches(t *testing.T, cfg *guard.Config, test func(t *testing.T, b *batches)) {
	t.Helper()
	inBubble(t, func(t *testing.T, w *world) {
		b := &batches{world: w, gate: make(chan struct{})}
		b.db = &hookedStore{Store: w.store, before: b.before, after: b.after}
		b.guard = w.on(b.db, cfg)
		close(b.gate)
		test(t, b)
	})
}

func (b *batches) before(ctx context.Context, step string, _ []storage.Claim) error {
	if step == "begin" {
		select {
		case <-b.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if b.ending != nil {
		b.ending.reach(step)
	}
	return nil
}

func (b *batches) after(step string, err error) error {
	if failed := new(storage.OpError); b.blind && step == "run" && errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

type batchOp struct {
	run   function
	alone bool
}

var _ storage.BatchOp[*memory.Tx] = (*batchOp)(nil)

func (b *batchOp) Run(ctx context.Context, tx *memory.Tx) error { return b.run(ctx, tx) }
func (b *batchOp) Shares() bool                                 { return !b.alone }

func (b *batches) named(resource, name string, fn function, opts ...guard.ValueOption) call {
	return func(ctx context.Context) error {
		return guard.Exec(ctx, b.guard, resource, &batchOp{run: b.noting(name, fn)}, append(opts, guard.OpName(name))...)
	}
}

// adds is a call with a batch for sku that appends name to k.
func (b *batches) adds(name string) call { return b.named(sku, name, put("k", name)) }

func (b *batches) noting(name string, fn function) function {
	return func(ctx context.Context, tx *memory.Tx) error {
		b.mu.Lock()
		b.ran = append(b.ran, name)
		b.mu.Unlock()
		return fn(ctx, tx)
	}
}

// put appends to what key has.
func put(key, text string) function {
	return func(_ context.Context, tx *memory.Tx) error {
		value, err := tx.Get(key)
		return errors.Join(err, tx.Set(key, value+text))
	}
}

func fails(fn function) function {
	return func(ctx context.Context, tx *memory.Tx) error { return errors.Join(fn(ctx, tx), errShop) }
}

// errGone stands for a call that didn't return, as its function panicked or ended its goroutine.
var errGone = errors.New("the call did not return")

// meet begins calls, in their order, while the store has no connection, and returns their errors.
func (b *batches) meet(calls ...call) []error {
	b.Helper()
	errs, open := b.arrive(calls...)
	open()
	return errs
}

// arrive is meet until open is called.
func (b *batches) arrive(calls ...call) (errs []error, open func()) {
	b.Helper()
	b.gate = make(chan struct{})
	errs = make([]error, len(calls))
	ended := make(chan struct{}, len(calls))
	for i, c := range calls {
		go func() {
			returned := false
			defer func() {
				if _ = recover(); !returned {
					errs[i] = errGone
				}
				ended <- struct{}{}
			}()
			errs[i] = c(b.Context())
			returned = true
		}()
		synctest.Wait()
	}
	return errs, func() {
		close(b.gate)
		for range calls {
			<-ended
		}
	}
}

func (b *batches) history() (names []string) {
	b.Helper()
	entries, err := b.store.Entries(b.Context(), sku, 0, 1000)
	require.NoError(b, err)
	for _, e := range entries {
		if e.Kind != storage.KindWrite {
			continue
		}
		var ops []string
		for _, op := range e.Ops {
			ops = append(ops, op.Name)
		}
		names = append(names, strings.Join(ops, " "))
	}
	return names
}

func TestBatch_CallsThatWaitShareATransaction(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, b *batches) {
		function := func(ctx context.Context) error {
			return guard.Do(ctx, b.guard, sku, put("k", "f"), guard.OpName("f"))
		}
		once := func(ctx context.Context) error { // its result is kept before the transaction commits
			return guard.Exec(ctx, b.guard, sku, &counting{}, guard.Once("k1", nil), guard.OpName("once"))
		}
		alone := func(ctx context.Context) error { // it leaves a setting, say
			return guard.Exec(ctx, b.guard, sku, &batchOp{run: put("k", "x"), alone: true}, guard.OpName("alone"))
		}
		errs := b.meet(b.adds("a"), b.adds("b"), function, b.adds("c"), b.adds("d"), once, b.adds("e"), b.adds("g"), alone, b.adds("h"))
		require.Equal(t, make([]error, 10), errs)
		require.Equal(t, "abfcdegxh", b.store.Read("k"), "in the order of the queue")
		require.Equal(t, []string{"a b", "f", "c d", "once", "e g", "alone", "h"}, b.history())
	})
}

// If one fails, nothing has happened: it runs alone, in its place in the queue, and its error is that of its own run.
// The others share transactions again, or run alone if the store doesn't know which one failed.
func TestBatch_ThatFailsRunsAlone(t *testing.T) {
	for history, blind := range map[string]bool{"a b, c d": false, "a, b, c, d": true} {
		t.Run(history, func(t *testing.T) {
			inBatches(t, nil, func(t *testing.T, b *batches) {
				b.blind = blind
				errs := b.meet(b.adds("a"), b.adds("b"), b.named(sku, "fails", fails(put("k", "x"))),
					b.adds("c"), b.adds("d"))
				require.ErrorIs(t, errs[2], errShop)
				errs[2] = nil
				require.Equal(t, make([]error, 5), errs)
				require.Equal(t, "abcd", b.store.Read("k"))
				require.Equal(t, history, strings.Join(b.history(), ", "))
				require.Equal(t, 2, strings.Count(strings.Join(b.ran, " "), "fails"))
			})
		})
	}
}

// Each call has its own error. What may have taken effect doesn't run again, and the resource settles the doubt
// before it is used again.
func TestBatch_UnknownOutcome(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, b *batches) {
		away := true
		b.store.SetFaults(memory.Faults{Commit: fates(memory.Late), Resolve: func(storage.InDoubt) error {
			if away {
				return errShop
			}
			return nil
		}})
		errs := b.meet(b.adds("a"), b.adds("b"))
		for i, err := range errs {
			unknown := new(guard.UnknownOutcomeError)
			require.ErrorAs(t, err, &unknown)
			require.Equal(t, []string{"a", "b"}[i], unknown.Record.Name)
		}
		require.Equal(t, []string{"a", "b"}, b.ran)
		away = false
		require.NoError(t, b.adds("c")(t.Context()))
		for _, err := range errs {
			applied, askErr := err.(*guard.UnknownOutcomeError).Resolve(t.Context())
			require.NoError(t, askErr)
			require.False(t, applied)
		}
		b.store.Deliver()
		require.NoError(t, b.adds("d")(t.Context()))
		require.Equal(t, "cd", b.store.Read("k"))
	})
}

// SQL of one has ended the transaction: what was written may stay, also by the others.
func TestBatch_EndedTransactionRunsNothingAgain(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, b *batches) {
		ends := b.named(sku, "ends", func(context.Context, *memory.Tx) error { return guard.ErrTxEnded })
		for _, err := range b.meet(b.adds("a"), ends, b.adds("b")) {
			require.ErrorIs(t, err, guard.ErrTxEnded)
		}
		require.Equal(t, []string{"a", "ends"}, b.ran)
	})
}

// The leader's store panics, or its goroutine ends: the others go on.
func TestBatch_StoreThatDoesNotReturn(t *testing.T) {
	for step, end := range map[string]func(){"commit": explode, "begin": runtime.Goexit} {
		t.Run(step, func(t *testing.T) {
			inBatches(t, nil, func(t *testing.T, b *batches) {
				b.ending = &endingOnce{at: step, end: end}
				errs := b.meet(b.adds("a"), b.adds("b"), b.adds("c"))
				require.ErrorIs(t, errs[0], errGone)
				for _, err := range errs[1:] {
					if step == "commit" {
						require.ErrorIs(t, err, guard.ErrUnknownOutcome)
					} else {
						require.NoError(t, err)
					}
				}
				boom := b.named(sku, "boom", func(context.Context, *memory.Tx) error { panic("boom") })
				require.Equal(t, []error{errGone, nil, nil}, b.meet(boom, b.adds("a"), b.adds("b")), "of an operation's own panic")
			})
		})
	}
}

// A call that is to share another transaction waits in the queue meanwhile: it can leave, and
// the end of the Guard ends its waiting.
func TestBatch_WaitsToShareAgain(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(b *batches, cancel context.CancelFunc)
		want error
	}{
		"its context ends":    {func(_ *batches, cancel context.CancelFunc) { cancel() }, context.Canceled},
		"the Guard is closed": {func(b *batches, _ context.CancelFunc) { go func() { _ = b.guard.Close(context.Background()) }() }, guard.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			inBatches(t, nil, func(t *testing.T, b *batches) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				left := make(chan struct{})
				runs := 0
				failsSlowly := func(context.Context, *memory.Tx) error {
					if runs++; runs == 2 { // alone
						test.end(b, cancel)
						<-left
					}
					return errShop
				}
				leaves := func(context.Context) error {
					defer close(left)
					return b.adds("c")(ctx)
				}
				errs := b.meet(b.adds("a"), b.named(sku, "fails", failsSlowly), leaves)
				require.NoError(t, errs[0])
				require.ErrorIs(t, errs[1], errShop)
				require.ErrorIs(t, errs[2], test.want)
				require.Equal(t, "a", b.store.Read("k"))
			})
		})
	}
}

// Where failures are the rule calls don't fail together first, but for now and then.
func TestBatch_BacksOffWhereFailuresAreTheRule(t *testing.T) {
	inBatches(t, nil, func(t *testing.T, b *batches) {
		var calls []call
		for _, name := range []string{"1", "2", "3", "4"} {
			calls = append(calls, b.named(sku, name, fails(put("k", "x"))))
		}
		errs := b.meet(append(calls, b.adds("a"), b.adds("b"), b.adds("c"))...)
		require.Equal(t, make([]error, 3), errs[4:])
		require.Equal(t, "1 1 2 2 3 4 a b c", strings.Join(b.ran, " "))
		require.Equal(t, []string{"a", "b", "c"}, b.history())
	})
}
