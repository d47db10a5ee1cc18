package chaos

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// slow is a Workload some of whose operations take their time between reading and
// writing, as code does that calculates, or calls another service: who loses a lock
// meanwhile has a successor that has read, and perhaps written, before it writes itself.
// Each worker has one of these resources for its own, on which it is slow from the
// beginning, and works on those of the others, too.
type slow interface {
	// slowResources are resources that no others are locked before, so that nobody waits
	// for a slow operation who isn't about one of these.
	slowResources() []string
}

// longestInTx is for how long an operation thinks at most in the midst of a
// transaction, which is ended when it is idle for longer (storeBounds).
const longestInTx = TTL / 2

// thinking is what a slow operation does between reading and writing.
type thinking struct {
	lasts time.Duration   // 0: the operation isn't slow
	deaf  bool            // it does not notice that its context ends, as a calculation doesn't
	over  <-chan struct{} // the load has ended: no need to go on
}

// thinkingOf decides about the n-th operation of a loop on a slow resource. The first
// one on the worker's own outlasts the loss of its lock by a fault that comes soon, and
// leaves it to the fence to say so.
func thinkingOf(n int, own bool, random *rand.Rand, over <-chan struct{}) thinking {
	t := thinking{deaf: random.IntN(2) == 0, over: over}
	switch {
	case n == 0 && own:
		t.lasts, t.deaf = between(random, TTL+TTL/2, 2*TTL), true
	case own || random.IntN(2) == 0:
		t.lasts = pick(random, between(random, TTL/8, longestInTx), between(random, longestInTx, 2*TTL))
	}
	return t
}

// pass lets the time pass, and returns the context under which the operation goes on.
// Who was deaf goes on as if its lock were its own yet: the fence has to refuse it.
func (t thinking) pass(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.lasts == 0 {
		return ctx, func() {}
	}
	ended := ctx.Done()
	if t.deaf {
		ended = nil
	}
	select {
	case <-time.After(t.lasts):
	case <-ended:
	case <-t.over:
	}
	if deadline, ok := ctx.Deadline(); ok && t.deaf {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return ctx, func() {}
}

// quickResources are those that are not for slow operations.
func quickResources(w Workload) []string {
	s, ok := w.(slow)
	if !ok {
		return w.Resources()
	}
	return slices.DeleteFunc(slices.Clone(w.Resources()), func(r string) bool { return slices.Contains(s.slowResources(), r) })
}
