package guard_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

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
