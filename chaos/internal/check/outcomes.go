package check

import (
	"maps"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// outcomes checks I3: once on each of its resources if it was acknowledged, on none
// if it failed, and on all or none otherwise.
func outcomes(v *view, t *tally) {
	t.look("%d operations with %d effects", len(v.operations), len(v.Observed.Effects))
	if len(v.broken) > 0 {
		t.lack("the history of operations is invalid: %s", v.broken[0])
	}
	for _, op := range v.operations {
		op.checkEffects(t)
		op.checkAnswers(t)
	}
	for _, e := range v.Observed.Effects {
		if v.byID[e.Op] == nil {
			t.violate("%s: operation %s took effect and was never invoked", e.Resource, e.Op)
		}
	}
	for _, e := range v.Events {
		// "Not applied" may be about an earlier attempt of the operation.
		if op := v.byID[e.Op]; e.Kind == history.Resolved && op != nil && e.Error == "" && e.Applied && !op.applied() {
			t.violate("%s was resolved as applied and has no effect", op)
		}
	}
}

func (op *operation) checkEffects(t *tally) {
	if op.end == history.Fail && op.applied() {
		t.violate("%s failed (%s) and took effect: %v", op, op.class, op.effects)
		return
	}
	if !op.applied() {
		if op.end == history.OK {
			t.violate("%s was acknowledged and has no effect", op)
		}
		return
	}
	for _, r := range op.resources {
		if n := op.effects[r]; n != 1 {
			t.violate("%s, %s, took effect %d times on %s", op, op.ending(), n, r)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(op.effects)) {
		if !slices.Contains(op.resources, r) {
			t.violate("%s took effect on %s, which is none of its resources", op, r)
		}
	}
}

func (op *operation) checkAnswers(t *tally) {
	for _, answer := range op.answers {
		if answer.Applied != op.applied() {
			t.violate("%s was resolved as applied=%v, and applied is %v", op, answer.Applied, op.applied())
		}
	}
}

// ending is how it ended, in words.
func (op *operation) ending() string {
	switch op.end {
	case history.OK:
		return "acknowledged"
	case history.Unknown:
		return "of unknown outcome"
	}
	return "cut off"
}
