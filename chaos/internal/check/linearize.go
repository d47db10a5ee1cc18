package check

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

// linearizeBound bounds the search for an order of the operations of one resource.
const linearizeBound = 20 * time.Second

// act is what an operation does on the fenced register.
type act string

const (
	actClaim    act = "claim"     // raises the register, which must not be higher
	actWrite    act = "write"     // was accepted: the register must be equal
	actRejected act = "rejection" // as stale: the register must be higher
)

// access is an operation on the fenced register of a resource.
type access struct {
	act
	grant
	by string // for messages
}

// registerModel is the fenced register of one resource: the highest grant that
// has claimed.
var registerModel = porcupine.Model{
	Init: func() any { return grant{} },
	Step: func(state, input, _ any) (bool, any) {
		at, a := state.(grant), input.(access)
		order := a.compare(at)
		switch a.act {
		case actClaim:
			return order >= 0, a.grant
		case actWrite:
			return order == 0, at
		}
		return order < 0, at
	},
}

// linearize checks that the operations on each fence have an order in which each takes
// effect between its call and its return, as far as these are known.
func (v *view) linearize(t *tally) {
	all := v.accesses()
	for _, resource := range slices.Sorted(maps.Keys(all)) {
		ops := decisive(all[resource])
		switch result, info := porcupine.CheckOperationsVerbose(registerModel, ops, linearizeBound); result {
		case porcupine.Ok:
		case porcupine.Unknown:
			t.lack("%s: no order of %d operations on the fence was found or ruled out within %v", resource, len(ops), linearizeBound)
		default:
			t.violate("%s: %s", resource, unplaced(ops, info))
		}
	}
}

// accesses are the operations on the register of each resource. The data settle an
// operation without an answer: its effect is in them or it isn't.
func (v *view) accesses() map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	add := func(resource string, a access, call, end int64) {
		all[resource] = append(all[resource], porcupine.Operation{Input: a, Call: call, Return: end})
	}
	for _, m := range v.wal.moves {
		if m.Kind == "claim" {
			call, end := v.claimTimes(grantKey{m.Resource, grantOf(m.Entry)})
			add(m.Resource, access{actClaim, grantOf(m.Entry), m.Holder}, call, end)
		}
	}
	for _, w := range v.wrote() {
		end := int64(math.MaxInt64)
		if w.op.end == history.OK {
			end = w.op.ended
		}
		add(w.Resource, access{actWrite, grantOf(w.Entry), "operation " + w.op.id}, w.op.invoked, end)
	}
	for _, e := range v.Events {
		if stale(e) {
			call, _ := v.claimTimes(keyOf(e))
			add(e.Resource, access{actRejected, keyOf(e).grant, e.Holder}, call, e.At)
		}
	}
	return all
}

// stale reports whether e is a rejection for a higher grant: a Guard that knew that one
// before names the lock service instead.
func stale(e history.Event) bool {
	return e.Kind == history.Rejected && (e.Reason == string(storage.ReasonStale) || e.Reason == string(storage.ReasonTokensWentBack))
}

// claimTimes returns times before and after a claim; the lowest and the highest one if no
// event gives them.
func (v *view) claimTimes(key grantKey) (before, after int64) {
	before, after = math.MinInt64, math.MaxInt64
	if at, ok := v.acquired[key]; ok {
		before = at
	}
	if at, ok := v.claimed[key]; ok {
		after = at
	}
	return before, after
}

// decisive leaves out operations that can't make a difference. The register only rises, so
// it is at a grant from its claim until the next claim: all writes of a grant fit between
// the two if the one that ended first ended after the claim, and the one that was called
// last was called before the next claim. And if the first recorded rejection of a grant was
// justified, the later ones were.
func decisive(ops []porcupine.Operation) (kept []porcupine.Operation) {
	type kind struct {
		act
		grant
	}
	first, last := map[kind]int{}, map[kind]int{}
	for i, op := range ops {
		a := op.Input.(access)
		k := kind{a.act, a.grant}
		if n, ok := first[k]; !ok || op.Return < ops[n].Return {
			first[k] = i
		}
		if n, ok := last[k]; !ok || op.Call > ops[n].Call {
			last[k] = i
		}
	}
	for i, op := range ops {
		a := op.Input.(access)
		k := kind{a.act, a.grant}
		if a.act == actClaim || first[k] == i || a.act == actWrite && last[k] == i {
			op.ClientId = len(kept)
			kept = append(kept, op)
		}
	}
	return kept
}

// unplaced names the operation that fits into no order with the others: of those
// that the longest order leaves out, the one that ended first.
func unplaced(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := map[int]bool{}
	for _, op := range longest {
		placed[op.ClientId] = true
	}
	var odd *porcupine.Operation
	for i := range ops {
		if op := &ops[i]; !placed[op.ClientId] && (odd == nil || op.Return < odd.Return) {
			odd = op
		}
	}
	if odd == nil {
		return "its operations have no order"
	}
	a := odd.Input.(access)
	register := grant{}
	for _, op := range longest {
		if b := op.Input.(access); b.act == actClaim {
			register = b.grant
		}
	}
	return fmt.Sprintf("the %s of %v by %s fits into no order with the others; %d of %d fit before it, up to a claim of %v",
		a.act, a.grant, a.by, len(longest), len(ops), register)
}
