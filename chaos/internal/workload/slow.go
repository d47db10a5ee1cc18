package workload

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// Slow is a Workload some of whose operations take their time between reading and
// writing, as code does that calculates, or calls another service: who loses a lock
// meanwhile has a successor that has read, and perhaps written, before it writes itself.
// Each worker has one of these resources for its own, on which it is slow from the
// beginning, and works on those of the others, too.
type Slow interface {
	// SlowResources are resources that no others are locked before, so that nobody waits
	// for a slow operation who isn't about one of these.
	SlowResources() []string
}

// LongestInTx is for how long an operation thinks at most in the midst of a
// transaction, which is ended when it is idle for longer (StoreBounds).
const LongestInTx = TTL / 2

// Thinking is what a slow operation does between reading and writing.
type Thinking struct {
	Lasts time.Duration   // 0: the operation isn't slow
	Deaf  bool            // it does not notice that its context ends, as a calculation doesn't
	Over  <-chan struct{} // the load has ended: no need to go on
}

// ThinkingOf decides about the n-th operation of a loop on a slow resource. The first
// one on the worker's own outlasts the loss of its lock by a fault that comes soon, and
// leaves it to the fence to say so.
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

// Pass lets the time pass, and returns the context under which the operation goes on.
// Who was deaf goes on as if its lock were its own yet: the fence has to refuse it.
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
