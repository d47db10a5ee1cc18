package worker

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fencekit/fencekit/internal/test/clock"
)

const (
	quickLoops = 2                     // loops for quick operations
	pace       = 25 * time.Millisecond // how often a loop begins an operation
	batches    = 4                     // of so many quick operations of the built-in workload one is a batch
)

// visitsAfter is when a worker begins to work on the slow resources of others: after those have acquired them.
const visitsAfter = 150 * time.Millisecond

// startLoad starts loops for quick operations, and for the slow resources of the built-in workload.
func (w *worker) startLoad() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.quiet = cancel
	loops := quickLoops
	if _, builtIn := w.workload.(Stock); builtIn {
		loops += len(slowSKUs)
	}
	for number := range loops {
		w.load.Go(func() { w.loop(ctx, number) })
	}
}

// loop does one operation after the other. On one slow resource the worker is slow from the beginning.
func (w *worker) loop(ctx context.Context, number int) {
	slow := number - quickLoops
	own := slow == w.spec.Number%len(slowSKUs)
	if slow >= 0 && !own && clock.Sleep(ctx, visitsAfter) != nil {
		return
	}
	_, builtIn := w.workload.(Stock)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The number, not the process id, decides: the same seed has the same operations.
		random := Rand(w.spec.Seed, fmt.Sprintf("%s.%d.%d", w.spec.Worker, number, n))
		op := Op{ID: fmt.Sprintf("%s.%d.%d.%d", w.spec.Worker, os.Getpid(), number, n), Seed: random.Uint64()}
		switch {
		case slow >= 0:
			op.Resource, op.think = slowSKUs[slow], thinkingOf(n, own, random, ctx.Done())
		case builtIn:
			op.Resource = Pick(random, quickSKUs...)
			if random.IntN(batches) == 0 {
				op.Action = ActionBatch
			}
		default:
			op.Resource = Pick(random, w.workload.Resources()...)
		}
		w.operate(op, w.spec.Within)
	}
}

func (w *worker) endLoad() {
	if w.quiet != nil {
		w.quiet()
	}
	w.load.Wait()
	w.note(NoteQuiet)
}
