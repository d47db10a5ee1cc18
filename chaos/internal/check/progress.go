package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// progress checks I9: once the faults are over, and again at the end, an operation
// on each resource gets through in time, and at the end none waits in vain: one who
// keeps a resource for good makes progress there, and nobody else does. And no lock key
// is left.
func progress(v *view, t *tally) {
	resources := v.used()
	t.look("%d resources, within %v of the end of the faults", len(resources), v.Progress)
	if len(resources) == 0 || v.Progress <= 0 {
		t.lack("nothing was worked on, or no bound was given")
		return
	}
	healed, ok := v.phase(history.PhaseHealed)
	final, ended := v.phase(history.PhaseFinal)
	if !ok || !ended {
		t.lack("the run didn't get to the end of its faults, or to its last phase")
		return
	}
	for _, r := range resources {
		// Between the two nobody is made to work on any one resource.
		if v.wanted(r, healed, min(final, healed+int64(v.Progress))) {
			v.checkProgress(r, "the end of the faults", healed, t)
		}
		v.checkProgress(r, "the beginning of the last phase", final, t)
	}
	for _, op := range v.operations {
		if op.invoked >= final && op.waitedInVain(int64(v.Progress)) {
			t.violate("%s got nothing in %v: %s", op, v.Progress, cmp.Or(op.failure, "it didn't end"))
		}
	}
	for _, key := range v.Observed.Left {
		t.violate("lock key %s was left", key)
	}
}

// wanted reports whether an operation on the resource was open at some time between.
func (v *view) wanted(resource string, from, to int64) bool {
	return slices.ContainsFunc(v.operations, func(op *operation) bool {
		return op.invoked < to && (op.ended == 0 || op.ended > from) && slices.Contains(op.resources, resource)
	})
}

func (v *view) checkProgress(resource, since string, from int64, t *tally) {
	first, failure := int64(-1), "nobody tried"
	for _, op := range v.operations {
		switch {
		case op.invoked < from || !slices.Contains(op.resources, resource):
		case !op.gotThrough():
			failure = fmt.Sprintf("%s: %s", op, cmp.Or(op.failure, "it didn't end"))
		case first < 0 || op.ended < first:
			first = op.ended
		}
	}
	switch {
	case first < 0:
		t.violate("%s: nothing got through after %s; lastly %s", resource, since, failure)
	case first-from > int64(v.Progress):
		t.violate("%s: nothing got through for %v after %s", resource, time.Duration(first-from).Round(time.Millisecond), since)
	}
}

// waitedInVain reports whether it did not get through, however long that took.
func (op *operation) waitedInVain(bound int64) bool {
	return !op.gotThrough() && (op.ended == 0 || op.ended-op.invoked >= bound)
}

// gotThrough reports whether it was done, or would have been had there been enough.
func (op *operation) gotThrough() bool {
	return op.end == history.OK || op.end == history.Fail && op.class == history.ClassSoldOut
}
