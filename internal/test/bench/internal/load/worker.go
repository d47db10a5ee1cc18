package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/test/clock"
)

// grace is how long an operation that has begun may take beyond the end.
const grace = 2 * time.Second

// Serve is the whole worker process: it reads a Spec, opens the contender that find returns
// for it and says so; is told to begin, runs operations that don't count yet, and says when
// it is warm; reads the Plan, and writes its Outcome when that is over.
func Serve(ctx context.Context, in io.Reader, out io.Writer, find func(Spec) (Open, error)) error {
	from, to := json.NewDecoder(in), json.NewEncoder(out)
	var spec Spec
	if err := from.Decode(&spec); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	open, err := find(spec)
	if err != nil {
		return err
	}
	t := NewTarget(spec)
	work, err := open(ctx, t)
	if err != nil {
		return fmt.Errorf("%s, %s: open: %w", spec.Scenario, spec.Contender, err)
	}
	if err := to.Encode("ready"); err != nil {
		return err
	}
	var begin string
	if err := from.Decode(&begin); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	outcome, err := newWorker(t, work).run(ctx, func() (plan Plan, err error) {
		if err := to.Encode("warm"); err != nil {
			return plan, err
		}
		return plan, from.Decode(&plan)
	})
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	if err := to.Encode(outcome); err != nil {
		return err
	}
	if err := t.close(ctx); err != nil {
		return fmt.Errorf("%s, %s: close: %w", spec.Scenario, spec.Contender, err)
	}
	return nil
}

type worker struct {
	target *Target
	work   Work
	plan   atomic.Pointer[Plan] // nil until it is known
	begun  atomic.Int64         // operations, for Spec.Limit
	failed atomic.Pointer[error]
	cold   atomic.Int64  // goroutines that have yet to become warm
	warm   chan struct{} // closed when none is cold
}

func newWorker(t *Target, work Work) *worker {
	w := &worker{target: t, work: work, warm: make(chan struct{})}
	w.cold.Store(int64(t.Goroutines))
	return w
}

// run runs operations. It asks for the plan once all goroutines are warm, or Spec.Warm has
// passed.
func (w *worker) run(ctx context.Context, askPlan func() (Plan, error)) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.target.Warm == 0 { // nothing runs before the measured time
		if err := w.learn(askPlan); err != nil {
			return Outcome{}, err
		}
	}
	each, finished := w.start(ctx)
	if w.target.Warm > 0 {
		select {
		case <-w.warm:
		case <-finished:
		case <-time.After(w.target.Warm):
		}
		if err := w.learn(askPlan); err != nil {
			return Outcome{}, err
		}
	}
	before := usage()
	AwaitOr(w.plan.Load().End, finished)
	after := usage()
	stop := time.AfterFunc(grace, cancel)
	defer stop.Stop()
	<-finished

	o := Together(each)
	o.use(before, after)
	if failed := w.failed.Load(); failed != nil {
		o.Err = (*failed).Error()
	}
	return o, nil
}

func (w *worker) learn(askPlan func() (Plan, error)) error {
	plan, err := askPlan()
	if err != nil {
		return err
	}
	w.plan.Store(&plan)
	Await(plan.Start)
	return nil
}

// start starts the goroutines. What each did is complete once finished is closed.
func (w *worker) start(ctx context.Context) (each []Outcome, finished <-chan struct{}) {
	each = make([]Outcome, w.target.Goroutines)
	var running sync.WaitGroup
	for g := range each {
		running.Go(func() { each[g] = w.goroutine(ctx, g) })
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	return each, done
}

func (w *worker) goroutine(ctx context.Context, g int) Outcome {
	var o Outcome
	warm := false
	for !w.over() && w.failed.Load() == nil && w.mayBegin() {
		began := clock.Now()
		err := w.work.Do(ctx, g, w.target.Item(g))
		ended := clock.Now()
		if err != nil {
			if ctx.Err() != nil {
				// Leaving it out would hide the longest waits.
				o.Abandoned++
				o.Latency = append(o.Latency, time.Duration(ended-began))
			} else {
				w.failed.CompareAndSwap(nil, &err)
			}
			return o
		}
		o.Succeeded++
		if !warm && w.target.warm() {
			warm = true
			if w.cold.Add(-1) == 0 {
				close(w.warm)
			}
		}
		if plan := w.plan.Load(); plan != nil && ended >= plan.Start && ended <= plan.End {
			o.count(*plan, began, ended)
		}
	}
	if plan := w.plan.Load(); plan != nil && w.target.Limit == 0 {
		o.Elapsed = time.Duration(plan.End - plan.Start)
	}
	return o
}

// count counts an operation that ended within the measured time.
func (o *Outcome) count(plan Plan, began, ended int64) {
	o.Operations++
	o.Elapsed = time.Duration(ended - plan.Start)
	o.Latency = append(o.Latency, time.Duration(ended-began))
}

func (w *worker) over() bool {
	plan := w.plan.Load()
	return plan != nil && clock.Now() >= plan.End
}

func (w *worker) mayBegin() bool {
	return w.target.Limit == 0 || w.begun.Add(1) <= w.target.Limit
}

// Await waits until a time on the clock of package clock.
func Await(at int64) { time.Sleep(time.Duration(at - clock.Now())) }

// AwaitOr is Await, but ends with done too.
func AwaitOr(at int64, done <-chan struct{}) {
	select {
	case <-time.After(time.Duration(at - clock.Now())):
	case <-done:
	}
}

// usage is what this process has used until now, as an Outcome.
func usage() Outcome {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(fmt.Sprintf("load: getrusage: %v", err)) // no system lacks it
	}
	return Outcome{
		CPU:         time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		Allocations: int64(mem.Mallocs),
	}
}

// use notes what was used between two moments.
func (o *Outcome) use(before, after Outcome) {
	o.CPU = after.CPU - before.CPU
	o.Allocations = after.Allocations - before.Allocations
}
