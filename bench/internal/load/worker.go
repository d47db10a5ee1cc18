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

	"github.com/fencekit/fencekit/bench/internal/stats"
	"github.com/fencekit/fencekit/internal/clock"
)

// grace is how long an operation that has begun may take beyond the end.
const grace = 2 * time.Second

// Serve is the whole worker process: it reads a Spec, opens the contender that find returns
// for it, says so, reads a Plan, runs, and writes its Outcome.
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
	var plan Plan
	if err := from.Decode(&plan); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	w := &worker{target: t, work: work, plan: plan}
	if err := to.Encode(w.run(ctx)); err != nil {
		return err
	}
	if work.Close == nil {
		return nil
	}
	if err := work.Close(ctx); err != nil {
		return fmt.Errorf("%s, %s: close: %w", spec.Scenario, spec.Contender, err)
	}
	return nil
}

// worker runs one contender in this process.
type worker struct {
	target *Target
	work   *Work
	plan   Plan
	begun  atomic.Int64 // operations, for Spec.Limit
	failed atomic.Pointer[error]
}

// run runs the plan.
func (w *worker) run(ctx context.Context) Outcome {
	if w.work.Measure != nil {
		measured, err := w.work.Measure(ctx)
		return Outcome{Measured: measured, Err: text(err)}
	}
	cancel := func() {}
	if !w.target.Background {
		ctx, cancel = context.WithCancel(ctx)
	}
	defer cancel()
	each := make([]Outcome, w.target.Goroutines)
	var running sync.WaitGroup
	await(w.plan.Begin)
	for g := range each {
		running.Go(func() { each[g] = w.goroutine(ctx, g) })
	}
	finished := make(chan struct{})
	go func() { running.Wait(); close(finished) }()

	await(w.plan.Start)
	before, after, err := w.measure(finished)
	if err != nil {
		w.failed.CompareAndSwap(nil, &err)
	}
	stop := time.AfterFunc(grace, cancel)
	defer stop.Stop()
	<-finished

	o := Together(each)
	o.ByProcess = nil
	after.since(before, &o)
	if failed := w.failed.Load(); failed != nil {
		o.Err = text(*failed)
	}
	return o
}

// measure takes what this process has used at the beginning and at the end of the measured
// time, or when it has finished, with a profile of what lies in between.
func (w *worker) measure(finished <-chan struct{}) (before, after usage, err error) {
	stop, err := profile(w.target.Spec)
	if err != nil {
		return before, after, err
	}
	before = takeUsage(w.target)
	awaitOr(w.plan.End, finished)
	after = takeUsage(w.target)
	return before, after, stop()
}

// goroutine runs operations until the end, the limit, or an error.
func (w *worker) goroutine(ctx context.Context, g int) Outcome {
	o := Outcome{Latency: stats.NewHistogram(), Timeline: make([]int64, parts)}
	part := (w.plan.End - w.plan.Start) / parts
	for clock.Now() < w.plan.End && w.failed.Load() == nil && w.mayBegin() {
		began := clock.Now()
		held, err := w.once(ctx, g)
		ended := clock.Now()
		if err != nil {
			if ctx.Err() != nil {
				// Leaving it out would hide the longest waits.
				o.Abandoned++
				o.Latency.Add(time.Duration(ended - began))
			} else {
				w.failed.CompareAndSwap(nil, &err)
			}
			return o
		}
		o.Succeeded++
		if ended < w.plan.Start || ended > w.plan.End {
			continue
		}
		o.Operations++
		o.Elapsed = time.Duration(ended - w.plan.Start)
		took := ended - began
		if held.acquired != 0 {
			o.Held = append(o.Held, held.acquired, held.released)
			took = held.acquired - began
		}
		o.Latency.Add(time.Duration(took))
		o.Timeline[min((ended-w.plan.Start)/max(part, 1), parts-1)]++
	}
	if w.target.Limit == 0 {
		o.Elapsed = time.Duration(w.plan.End - w.plan.Start)
	}
	return o
}

// mayBegin counts an operation against the limit.
func (w *worker) mayBegin() bool {
	return w.target.Limit == 0 || w.begun.Add(1) <= w.target.Limit
}

// held is when a lock was acquired, and when its release began.
type held struct{ acquired, released int64 }

// once runs one operation, or acquires and releases a lock.
func (w *worker) once(ctx context.Context, g int) (held, error) {
	if w.work.Do != nil {
		return held{}, w.work.Do(ctx, g)
	}
	release, err := w.work.Acquire(ctx, g)
	if err != nil {
		return held{}, err
	}
	h := held{acquired: clock.Now()}
	if hold := w.target.Hold; hold > 0 {
		time.Sleep(hold)
	}
	h.released = clock.Now()
	// Others wait for it: the end of this run must not keep the lock from them.
	return h, release(context.WithoutCancel(ctx))
}

func await(at int64) { time.Sleep(time.Duration(at - clock.Now())) }

func awaitOr(at int64, done <-chan struct{}) {
	select {
	case <-time.After(time.Duration(at - clock.Now())):
	case <-done:
	}
}

// usage is what this process had used at a moment.
type usage struct {
	cpu                            time.Duration
	mallocs, bytes, writes, writeB int64
	retries                        int64
}

func takeUsage(t *Target) usage {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(fmt.Sprintf("load: getrusage: %v", err)) // no system lacks it
	}
	return usage{
		cpu:     time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		mallocs: int64(mem.Mallocs), bytes: int64(mem.TotalAlloc),
		writes: t.Wire.Writes.Load(), writeB: t.Wire.Bytes.Load(), retries: t.Retries.Load(),
	}
}

func (u usage) since(before usage, o *Outcome) {
	o.CPU = u.cpu - before.cpu
	o.Allocations, o.AllocatedBytes = u.mallocs-before.mallocs, u.bytes-before.bytes
	o.Writes, o.WrittenBytes, o.Retries = u.writes-before.writes, u.writeB-before.writeB, u.retries-before.retries
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
