// Package model explores the protocol of docs/protocol.md, as a small transition system, through
// every interleaving of a few clients. It is exhaustive within its bounds, and says nothing beyond
// them.
//
//	go test ./internal/test/model -run TestVariants -v
//
// prints the counter-examples and the table of variants: bounds within which the protocol holds, each followed
// by the protocol with one thing broken, which fails within them. Data are judged by an oracle that never looks at
// the fence: an update can be lost while the log of tokens is in perfect order.
//
// go test ./internal/test/model -run '^$' -bench LargerBounds -benchtime 1x explores larger bounds, as make soak does.
//
// Mutual exclusion is not assumed: any client may be granted a higher token at any time, as if
// every lease were lost at the worst moment. Where locks are kept beside the fences (Protocol.Own)
// a session has to end first, as it may at any time. Pauses, delays and crashes need no steps, because a
// step that is possible need not happen. COMMIT is a message: it arrives at any later time or
// never. [Faults] lists what else may happen.
//
// These are abstracted:
//
//   - Isolation levels and locks of data rows: a transaction's read happens at any moment between
//     its grant's last word from the database and COMMIT, and its write is blind. No level of
//     Postgres promises less.
//   - The lock of the fence row: claim, void, and seal with commit are one step each, and wait for a
//     transaction that claims by itself alone. So deadlocks are not here.
//   - etcd: tokens increase (F1). A token is the pair of epoch and token.
//   - Timeouts and evictions: they bound waiting (L1) and decide nothing.
//   - When the database goes back, connections end. So the begin check's comparison of timelines
//     is good for its whole transaction.
//   - The hash chain, entries of rejections, and that keys of Once are forgotten.
//   - Operations that only read (G13): they move nothing that another could depend on.
//
// To add a variant, add a switch to [Mutation] whose zero value is the protocol, use it where the
// rule is that it changes, and add a row with the result that you predict, before you run it.
package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Step is one atomic thing that happens. A "#" in What is replaced by N. In one state no two steps have the same
// name, so a list of steps is a schedule that can be run again.
type Step struct {
	Who, What string
	N         int8
}

func (s Step) String() string {
	return fmt.Sprintf("%s: %s", s.Who, strings.ReplaceAll(s.What, "#", strconv.Itoa(int(s.N))))
}

// Model is a finite transition system. States are plain values.
type Model[S comparable] interface {
	// Start is the state in which everything begins.
	Start() S
	// Next yields each possible step with the state after it.
	Next(s S, yield func(Step, S))
	// Judge judges one state. final says that no step is possible in it.
	Judge(s S, final bool) Violation
	// Canonical maps states that differ only in the names of equal processes onto one of them.
	Canonical(s S) S
	Show(s S) string // in one line
}

type Moment struct {
	Step  Step
	After string
}

// Result is what an exploration found.
type Result struct {
	Violation Violation      // Holds, or the first property found broken, breadth first
	Schedule  []Moment       // a shortest counter-example
	States    int            // distinct ones that were visited
	Depth     int            // length of the longest shortest path to a visited state
	Taken     map[string]int // transitions by Step.What: a step that was never taken was not examined
}

// node is a visited state with the way back to the start. It holds no pointers: the garbage collector need not
// look at a million of them.
type node[S comparable] struct {
	state  S
	parent int32
	depth  int32
}

// Explore visits every state that m can reach, breadth first, until one breaks a property. It fails when there are
// more than limit states.
func Explore[S comparable](m Model[S], limit int) (Result, error) {
	start := m.Start()
	nodes := []node[S]{{state: start, parent: -1}}
	seen := map[S]struct{}{m.Canonical(start): {}}
	result := Result{Taken: map[string]int{}}
	for i := 0; i < len(nodes); i++ {
		at := nodes[i]
		final := true
		m.Next(at.state, func(step Step, next S) {
			final = false
			result.Taken[step.What]++
			key := m.Canonical(next)
			if _, known := seen[key]; known {
				return
			}
			seen[key] = struct{}{}
			nodes = append(nodes, node[S]{state: next, parent: int32(i), depth: at.depth + 1})
		})
		result.States, result.Depth = len(nodes), int(nodes[len(nodes)-1].depth)
		if broken := m.Judge(at.state, final); broken != Holds {
			result.Violation, result.Schedule = broken, schedule(m, nodes, i)
			return result, nil
		}
		if len(nodes) > limit {
			return result, fmt.Errorf("model: more than %d states: nothing is known, choose smaller bounds", limit)
		}
	}
	return result, nil
}

func schedule[S comparable](m Model[S], nodes []node[S], i int) []Moment {
	var moments []Moment
	for ; nodes[i].parent >= 0; i = int(nodes[i].parent) {
		moments = append(moments, Moment{stepTo(m, nodes[nodes[i].parent].state, nodes[i].state), m.Show(nodes[i].state)})
	}
	slices.Reverse(moments)
	return moments
}

func stepTo[S comparable](m Model[S], from, to S) Step {
	var found Step
	m.Next(from, func(step Step, next S) {
		if next == to {
			found = step
		}
	})
	return found
}

// Replay runs a schedule and returns the verdict after each step. It fails at the first step that is not possible,
// or whose name two steps share.
func Replay[S comparable](m Model[S], steps []Step) ([]Violation, error) {
	state := m.Start()
	verdicts := make([]Violation, 0, len(steps))
	for i, want := range steps {
		var after []S
		m.Next(state, func(step Step, next S) {
			if step == want {
				after = append(after, next)
			}
		})
		if len(after) != 1 {
			return verdicts, fmt.Errorf("model: step %d (%v) is possible in %d ways, want 1", i+1, want, len(after))
		}
		state = after[0]
		final := true
		m.Next(state, func(Step, S) { final = false })
		verdicts = append(verdicts, m.Judge(state, final))
	}
	return verdicts, nil
}

// Format prints a schedule, one numbered line per step, the state after it below.
func Format(moments []Moment) string {
	var b strings.Builder
	for i, m := range moments {
		fmt.Fprintf(&b, "%3d. %v\n%14s%s\n", i+1, m.Step, "", m.After)
	}
	return b.String()
}

// Violation names the property that a state breaks; the zero value is Holds.
type Violation uint8

const (
	Holds Violation = iota

	// LostUpdate (G2, G3, G6): the data is not what the operations that took effect would have made of them one
	// after another. The oracle counts what was written and never looks at the fence.
	LostUpdate
	AppliedTwice // G4
	// AckedNotApplied (G4): the answer was that the operation took effect, and it did not. What the database
	// itself has lost is excused, but not where a synchronous standby took over.
	AckedNotApplied
	// DeniedButApplied (G4): the answer was that the operation did not take effect, and it did, before or after.
	DeniedButApplied
	// OlderCommitted (G1, G3): a lower token, or another holder of the same one, committed after a newer grant had
	// claimed or user code had run under it.
	OlderCommitted
	// UnjustifiedStale (G5): a client was rejected as stale and no higher claim had committed.
	UnjustifiedStale
	// UntrueReason (G5): a client was rejected as overtaken, and no other one had its grant; or because the
	// database went back, and it had not.
	UntrueReason
	// OwnerSuperseded (L1): a client was rejected as stale while it owned the lock, and the database hadn't gone back.
	OwnerSuperseded
	// PassedOver (L1): a transaction that claims by itself began while another client waited for the lock.
	PassedOver
	// Stuck: nothing can happen any more, and a client has not been answered.
	Stuck
)

func (v Violation) String() string {
	return [...]string{
		Holds:            "HOLDS",
		LostUpdate:       "FAILS data: lost update",
		AppliedTwice:     "FAILS data: applied twice",
		AckedNotApplied:  "FAILS answer: applied, but it is not",
		DeniedButApplied: "FAILS answer: not applied, but it is",
		OlderCommitted:   "FAILS order: an older grant committed",
		UnjustifiedStale: "FAILS rejection: stale without a higher claim",
		UntrueReason:     "FAILS rejection: a reason that is not so",
		OwnerSuperseded:  "FAILS progress: the lock's owner was superseded",
		PassedOver:       "FAILS progress: a waiter was passed over",
		Stuck:            "FAILS progress: stuck",
	}[v]
}
