package guard

import (
	"context"
	"fmt"
	"sync"

	"github.com/fencekit/fencekit/fence"
)

// Guard runs operations that nobody with an older grant can interfere with. Use
// New. All methods, and the functions that take a Guard, may be called from
// several goroutines.
//
// Calls for one resource run one after another, in order of arrival, also across
// processes that share the lock service. Calls for different resources don't wait
// for each other. Each call runs on its caller's goroutine.
type Guard[Tx any] struct {
	engine[Tx]
	keeper *keeper
}

// New returns a Guard that locks with locker and writes through store. It closes
// neither. Close the Guard before them. It fails with ErrInvalid if an argument
// is nil or cfg is out of bounds.
func New[Tx any](locker fence.Locker, store Store[Tx], cfg *Config) (*Guard[Tx], error) {
	if locker == nil || store == nil {
		return nil, fmt.Errorf("%w: New needs a locker and a store", ErrInvalid)
	}
	filled := cfg.withDefaults()
	if err := filled.validate(); err != nil {
		return nil, err
	}
	k := newKeeper(locker, filled)
	return &Guard[Tx]{engine: newEngine(store, filled, k.report), keeper: k}, nil
}

func newEngine[Tx any](store Store[Tx], cfg Config, report *reporter) engine[Tx] {
	return engine[Tx]{store: store, commitTimeout: cfg.CommitTimeout, resolveTimeout: cfg.ResolveTimeout, report: report}
}

// Close ends the Guard. Calls that have not begun to run, and later ones, return
// ErrClosed. Close waits for those that run, releases what is owned and returns
// nil. When ctx ends first the contexts of running functions end with the cause
// ErrClosed, and Close returns ctx's error while they finish in the background.
// It may be called again, to wait again.
func (g *Guard[Tx]) Close(ctx context.Context) error {
	k := g.keeper
	k.closeLines(ctx)
	select {
	case <-k.done:
		return nil
	case <-ctx.Done():
		k.kill(ErrClosed)
		return fmt.Errorf("guard: close: %w", ctx.Err())
	}
}

// closeLines turns away who waits and releases what is idle. What is busy is
// released when its turn is given back.
func (k *keeper) closeLines(ctx context.Context) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.closed = true
	k.close(ErrClosed)
	var idle []*line
	for _, l := range k.lines {
		for e := l.waiting.Front(); e != nil; e = l.waiting.Front() {
			l.waiting.Remove(e)
			e.Value.(*waiter).decide(ErrClosed)
		}
		if k.seize(l, l.tenure) {
			idle = append(idle, l)
		}
	}
	if len(k.lines) == 0 {
		close(k.done)
	}
	k.mu.Unlock()
	k.retireAll(ctx, idle)
}

// closers is how many leases Close releases at a time.
const closers = 32

// retireAll retires lines whose turn the caller has. It returns when that is
// done or ctx has ended.
func (k *keeper) retireAll(ctx context.Context, lines []*line) {
	next := make(chan *line, len(lines))
	for _, l := range lines {
		next <- l
	}
	close(next)
	var done sync.WaitGroup
	for range min(closers, len(lines)) {
		done.Go(func() {
			for l := range next {
				k.drop(ctx, l)
				k.give(ctx, l)
			}
		})
	}
	done.Wait()
}
