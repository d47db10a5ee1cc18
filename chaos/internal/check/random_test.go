package check

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// simulation has processes that take steps in any order, as if every lease were lost at the
// worst moment: locks exclude no process, only the fence does.
type simulation struct {
	*made
	t     *rapid.T
	steps map[string][]func() // the remaining steps of each process
	held  map[string]*lock    // by resource: the lock whose key exists
}

// chance is true in one of n cases.
func (c *simulation) chance(n int, what string) bool {
	return rapid.IntRange(1, n).Draw(c.t, what) == 1
}

// takeOver ends the lease of a lock's holder, and grants the lock.
func (c *simulation) takeOver(process, resource string) *lock {
	if before := c.held[resource]; before != nil {
		c.gone(before)
	}
	c.held[resource] = c.grant(process, resource)
	return c.held[resource]
}

// release releases a lock that may have been lost.
func (c *simulation) release(l *lock) {
	if c.held[l.resource] == l {
		c.gone(l)
		c.held[l.resource] = nil
	}
	c.record(l.event(history.Released))
}

func (c *simulation) add(process string, steps ...func()) {
	c.steps[process] = append(c.steps[process], steps...)
}

// begin gives a process an operation.
func (c *simulation) begin(process string, resources []string) {
	op := c.invoke(process, "do", resources...)
	locks := make([]*lock, len(resources))
	for i, r := range resources {
		c.add(process,
			func() { locks[i] = c.takeOver(process, r) },
			func() { c.record(locks[i].event(history.Acquired)) },
			func() { c.tryClaim(op, locks[i]) },
			func() { c.record(locks[i].event(history.Claimed)) })
	}
	seen := make([]int, len(resources))
	for i, r := range resources {
		c.add(process, func() { seen[i] = c.available[r] })
	}
	c.add(process, func() { c.seal(op, seen, locks) })
}

// tryClaim claims, unless the fence rejects it.
func (c *simulation) tryClaim(op string, l *lock) {
	if c.fences[l.resource].token > l.token {
		c.rejected(op, l, "claim")
		return
	}
	c.commit(c.move(l, "c"))
}

// rejected has a process record a rejection, and then the end of its operation.
func (c *simulation) rejected(op string, l *lock, stage string) {
	e := c.rejection(l, stage)
	c.steps[l.process] = []func(){
		func() { c.record(e) },
		func() { c.end(op, history.Fail) },
	}
}

// seal commits if the fences are where the claims left them.
func (c *simulation) seal(op string, seen []int, locks []*lock) {
	for _, l := range locks {
		if f := c.fences[l.resource]; f.token != l.token || f.seq != l.seq {
			c.rejected(op, l, "seal")
			return
		}
	}
	c.write(op, c.chance(2, "named"), seen, locks...)
	process := locks[0].process
	if c.chance(4, "reply lost") {
		c.add(process,
			func() { c.end(op, history.Unknown) },
			func() { c.record(history.Event{Kind: history.Answer, Process: process, Op: op, Applied: true}) })
		return
	}
	c.add(process, func() { c.end(op, history.OK) })
	for _, l := range locks {
		c.add(process, func() { c.release(l) })
	}
}

// step takes one step of a process, or kills it.
func (c *simulation) step(processes, resources []string) {
	process := rapid.SampledFrom(processes).Draw(c.t, "process")
	todo := c.steps[process]
	switch {
	case len(todo) == 0:
		first := rapid.IntRange(0, len(resources)-1).Draw(c.t, "first")
		last := rapid.IntRange(first, len(resources)-1).Draw(c.t, "last")
		c.begin(process, resources[first:last+1])
	case c.chance(25, "killed"):
		c.steps[process] = nil
		c.record(history.Event{Kind: history.Ends, Process: process, Error: "killed"})
	default:
		c.steps[process] = todo[1:]
		todo[0]()
	}
}

// finish ends the run as a good one.
func (c *simulation) finish(processes, resources []string) {
	c.phase(history.PhaseFaultsOver)
	for _, p := range processes {
		for len(c.steps[p]) > 0 {
			next := c.steps[p][0]
			c.steps[p] = c.steps[p][1:]
			next()
		}
	}
	c.phase(history.PhaseFinal)
	for _, r := range resources {
		if l := c.held[r]; l != nil {
			c.release(l)
		}
		c.do("w1", r)
	}
	c.phase(history.PhaseEnd)
}

// No run under a fence that works is flagged.
func TestJudge_HoldsForAnyGoodRun(t *testing.T) {
	processes, resources := []string{"w1", "w2", "w3"}, []string{"sku/1", "sku/2", "sku/3"}
	rapid.Check(t, func(rt *rapid.T) {
		c := &simulation{made: newMade(1000, resources...), t: rt, steps: map[string][]func(){}, held: map[string]*lock{}}
		for range rapid.IntRange(0, 120).Draw(rt, "steps") {
			c.step(processes, resources)
		}
		c.finish(processes, resources)
		for _, f := range c.judge() {
			if f.Status != Held && f.Status != Irrelevant {
				rt.Fatalf("%+v", f)
			}
		}
		counts := c.Counts
		require.Zero(rt, counts.Lost+counts.Oversold)
	})
}
