package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/clock"
)

// loop is a goroutine of the load.
type loop struct {
	after time.Duration // it begins so long after the load
	// next returns the operations of its n-th round, which it does at once. over is closed at the
	// end of the load.
	next func(n int, random *rand.Rand, over <-chan struct{}) []workload.Op
}

// A worker sells another one's lots in one of this many rounds. In the other rounds it has kept
// the locks of most of its own, so its batches begin together.
const lotVisits = 8

// visitsAfter is when a worker begins to work on the slow resources of other workers: after
// those have acquired them, and before the first fault.
const visitsAfter = 150 * time.Millisecond

// loops are what this worker does under load, concurrently. Each slow resource has its own
// loop: a loop for several would wait for the first of them.
func (w *worker) loops() (loops []loop) {
	quick := workload.QuickResources(w.workload)
	for range w.spec.Loops {
		loops = append(loops, loop{0, func(_ int, random *rand.Rand, _ <-chan struct{}) []workload.Op {
			op := workload.Op{Resource: workload.Pick(random, quick...), Seed: random.Uint64()}
			if len(w.spec.Actions) > 0 {
				op.Action = workload.Pick(random, w.spec.Actions...)
			}
			return []workload.Op{op}
		}})
	}
	if w.spec.Lots > 0 {
		loops = append(loops, loop{0, w.sellLots})
	}
	s, ok := w.workload.(workload.Slow)
	if !ok {
		return loops
	}
	for i, resource := range s.SlowResources() {
		own, after := i == w.spec.Number%len(s.SlowResources()), visitsAfter
		if own {
			after = 0
		}
		loops = append(loops, loop{after, func(n int, random *rand.Rand, over <-chan struct{}) []workload.Op {
			return []workload.Op{{Resource: resource, Seed: random.Uint64(), Think: workload.ThinkingOf(n, own, random, over)}}
		}})
	}
	return loops
}

// sellLots is a batch on each of this worker's lots or, in some rounds, on those of the next
// worker, which then loses their locks and has to claim them anew.
func (w *worker) sellLots(n int, random *rand.Rand, _ <-chan struct{}) (ops []workload.Op) {
	owner := w.spec.Number
	if n%lotVisits == lotVisits-1 {
		owner++
	}
	for _, lot := range stock.LotsOf(owner, w.spec.Lots) {
		ops = append(ops, workload.Op{Resource: lot, Seed: random.Uint64(), Action: stock.ActionBatch})
	}
	return ops
}

// startLoad starts the loops.
func (w *worker) startLoad() {
	ctx, cancel := context.WithCancel(w.ctx)
	w.quiet = cancel
	for number, l := range w.loops() {
		w.load.Go(func() { w.repeat(ctx, number, l) })
	}
}

// repeat does one round of operations after another until ctx ends.
func (w *worker) repeat(ctx context.Context, number int, l loop) {
	if clock.Sleep(ctx, l.after) != nil {
		return
	}
	tick := time.NewTicker(w.spec.Pace)
	defer tick.Stop()
	for n, begun := 0, 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// The number, not the process id, decides: the same seed has the same operations.
		random := workload.Op{ID: fmt.Sprintf("%s.%d.%d", w.spec.Worker, number, n), Seed: w.spec.Seed}.Rand()
		var round sync.WaitGroup
		for _, op := range l.next(n, random, ctx.Done()) {
			op.ID = fmt.Sprintf("%s.%d.%d.%d", w.spec.Worker, os.Getpid(), number, begun)
			begun++
			round.Go(func() { w.operate(w.ctx, op, w.spec.Within) })
		}
		round.Wait()
	}
}

// endLoad ends the loops, and records when every operation has ended.
func (w *worker) endLoad() {
	if w.quiet != nil {
		w.quiet()
	}
	w.load.Wait()
	w.note(NoteQuiet)
}
