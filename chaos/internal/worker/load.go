package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/fencekit/fencekit/internal/clock"
)

const (
	quickLoops = 2
	pace       = 25 * time.Millisecond
)

// visitsAfter is when a worker begins to work on the slow resources of others: after those have acquired them, and
// before the first fault.
const visitsAfter = 150 * time.Millisecond

// Of so many quick operations of the built-in workload one is a batch.
const batches = 4

type loop struct {
	after time.Duration // it begins so long after the load
	// over is closed at the end of the load.
	next func(n int, random *rand.Rand, over <-chan struct{}) Op
}

// loops are what this worker does under load. Only the built-in workload has slow resources, each with a loop of
// its own. On one of them the worker is slow from the beginning.
func (w *worker) loops() (loops []loop) {
	quick, slow := w.workload.Resources(), []string(nil)
	_, builtIn := w.workload.(Stock)
	if builtIn {
		quick, slow = quickSKUs, slowSKUs
	}
	for range quickLoops {
		loops = append(loops, loop{0, func(_ int, random *rand.Rand, _ <-chan struct{}) Op {
			op := Op{Resource: Pick(random, quick...), Seed: random.Uint64()}
			if builtIn && random.IntN(batches) == 0 {
				op.Action = ActionBatch
			}
			return op
		}})
	}
	for i, resource := range slow {
		own, after := i == w.spec.Number%len(slow), visitsAfter
		if own {
			after = 0
		}
		loops = append(loops, loop{after, func(n int, random *rand.Rand, over <-chan struct{}) Op {
			return Op{Resource: resource, Seed: random.Uint64(), think: thinkingOf(n, own, random, over)}
		}})
	}
	return loops
}

func (w *worker) startLoad() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.quiet = cancel
	for number, l := range w.loops() {
		w.load.Go(func() { w.repeat(ctx, number, l) })
	}
}

func (w *worker) repeat(ctx context.Context, number int, l loop) {
	if clock.Sleep(ctx, l.after) != nil {
		return
	}
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The number, not the process id, decides: the same seed has the same operations.
		op := l.next(n, Rand(w.spec.Seed, fmt.Sprintf("%s.%d.%d", w.spec.Worker, number, n)), ctx.Done())
		op.ID = fmt.Sprintf("%s.%d.%d.%d", w.spec.Worker, os.Getpid(), number, n)
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
