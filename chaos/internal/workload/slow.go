package workload

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// Slow is a Workload some of whose operations take time between reading and writing, as
// code does that calculates, or calls another service. A holder that loses its lock
// meanwhile writes after its successor has read, and perhaps written. Each worker has one
// of the slow resources as its own, on which it is slow from the beginning; it works on the
// others' too.
type Slow interface {
	// SlowResources are locked before all other resources, so that only operations on slow
	// resources wait for a slow operation.
	SlowResources() []string
}

// LongestInTx bounds how long an operation thinks in a transaction. A transaction that is
// idle for longer is ended (StoreBounds).
const LongestInTx = TTL / 2

// Thinking is what a slow operation does between reading and writing.
type Thinking struct {
	Lasts time.Duration   // 0: the operation isn't slow
	Deaf  bool            // it ignores the end of its context, as a calculation does
	Over  <-chan struct{} // closed at the end of the load, which ends the thinking too
}

// ThinkingOf returns how the n-th operation of a loop on a slow resource thinks. The first
// one on the worker's own resource goes on after an early fault has taken its lock, so that
// only the fence can reject it.
func ThinkingOf(n int, own bool, random *rand.Rand, over <-chan struct{}) Thinking {
	t := Thinking{Deaf: random.IntN(2) == 0, Over: over}
	switch {
	case n == 0 && own:
		t.Lasts, t.Deaf = Between(random, TTL+TTL/2, 2*TTL), true
	case own || random.IntN(2) == 0:
		t.Lasts = Pick(random, Between(random, TTL/8, LongestInTx), Between(random, LongestInTx, 2*TTL))
	}
	return t
}

// Pass waits, and returns the context under which the operation goes on. A deaf operation
// goes on as if it still had its lock: the fence has to reject it.
func (t Thinking) Pass(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.Lasts == 0 {
		return ctx, func() {}
	}
	ended := ctx.Done()
	if t.Deaf {
		ended = nil
	}
	select {
	case <-time.After(t.Lasts):
	case <-ended:
	case <-t.Over:
	}
	if deadline, ok := ctx.Deadline(); ok && t.Deaf {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return ctx, func() {}
}

// QuickResources are those that are not for slow operations.
func QuickResources(w Workload) []string {
	s, ok := w.(Slow)
	if !ok {
		return w.Resources()
	}
	return slices.DeleteFunc(slices.Clone(w.Resources()), func(r string) bool { return slices.Contains(s.SlowResources(), r) })
}
