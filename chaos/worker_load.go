package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// loop is a goroutine of the load.
type loop struct {
	after time.Duration // the load has begun
	// next decides about its n-th operation. over ends with the load.
	next func(n int, random *rand.Rand, over <-chan struct{}) Op
}

// visitsAfter is when others have acquired what they are slow on, and before the first
// fault.
const visitsAfter = 150 * time.Millisecond

// loops are what this worker does under load, all at the same time. Each slow resource
// has a loop: one for several would wait for the first of them.
func (w *worker) loops() (loops []loop) {
	quick := quickResources(w.workload)
	for range w.spec.Loops {
		loops = append(loops, loop{0, func(_ int, random *rand.Rand, _ <-chan struct{}) Op {
			return Op{Resource: pick(random, quick...), Seed: random.Uint64()}
		}})
	}
	s, ok := w.workload.(slow)
	if !ok {
		return loops
	}
	for i, resource := range s.slowResources() {
		own, after := i == w.spec.Number%len(s.slowResources()), visitsAfter
		if own {
			after = 0
		}
		loops = append(loops, loop{after, func(n int, random *rand.Rand, over <-chan struct{}) Op {
			return Op{Resource: resource, Seed: random.Uint64(), think: thinkingOf(n, own, random, over)}
		}})
	}
	return loops
}

// startLoad begins to work by itself.
func (w *worker) startLoad() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.quiet = cancel
	for number, l := range w.loops() {
		w.load.Go(func() { w.repeat(ctx, number, l) })
	}
}

// repeat does one operation after another until ctx ends.
func (w *worker) repeat(ctx context.Context, number int, l loop) {
	if wait(ctx, l.after) != nil {
		return
	}
	tick := time.NewTicker(w.spec.Pace)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// By number, not by process id: the same operations for the same seed.
		random := Op{ID: fmt.Sprintf("%s.%d.%d", w.spec.Worker, number, n), Seed: w.spec.Seed}.Rand()
		op := l.next(n, random, ctx.Done())
		op.ID = fmt.Sprintf("%s.%d.%d.%d", w.spec.Worker, os.Getpid(), number, n)
		w.operate(w.ctx, op, w.spec.Within)
	}
}

// endLoad ends that, once every operation has come to its end.
func (w *worker) endLoad() {
	if w.quiet != nil {
		w.quiet()
	}
	w.load.Wait()
	w.note(noteQuiet)
}
