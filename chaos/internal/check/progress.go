package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// progress checks I9: after the faults, and again in the last phase, an operation on each
// resource succeeds in time. In the last phase no operation waits for longer than the
// bound: a worker that never releases a resource makes progress, and the others don't. And
// no lock key is left.
func progress(v *view, t *tally) {
	resources := v.used()
	t.look("%d resources, within %v of the end of the faults", len(resources), v.Progress)
	if len(resources) == 0 || v.Progress <= 0 {
		t.lack("there were no operations, or no bound was given")
		return
	}
	reverted, ok := v.phase(history.PhaseFaultsOver)
	final, ended := v.phase(history.PhaseFinal)
	if !ok || !ended {
		t.lack("the run didn't reach the end of its faults, or its last phase")
		return
	}
	for _, r := range resources {
		// Between the two no operation on this resource may have been asked for.
		if v.wanted(r, reverted, min(final, reverted+int64(v.Progress))) {
			v.checkProgress(r, "the end of the faults", reverted, t)
		}
		v.checkProgress(r, "the beginning of the last phase", final, t)
	}
	for _, op := range v.operations {
		if op.invoked >= final && op.starved(int64(v.Progress)) {
			t.violate("%s did not succeed within %v: %s", op, v.Progress, cmp.Or(op.failure, "it did not end"))
		}
	}
	for _, key := range v.Observed.Left {
		t.violate("lock key %s was left", key)
	}
}

// wanted reports whether an operation on the resource was open at some time in between.
func (v *view) wanted(resource string, from, to int64) bool {
	return slices.ContainsFunc(v.operations, func(op *operation) bool {
		return op.invoked < to && (op.ended == 0 || op.ended > from) && slices.Contains(op.resources, resource)
	})
}

func (v *view) checkProgress(resource, since string, from int64, t *tally) {
	first, failure := int64(-1), "there was no operation"
	for _, op := range v.operations {
		switch {
		case op.invoked < from || !slices.Contains(op.resources, resource):
		case !op.succeeded():
			failure = fmt.Sprintf("%s: %s", op, cmp.Or(op.failure, "it did not end"))
		case first < 0 || op.ended < first:
			first = op.ended
		}
	}
	switch {
	case first < 0:
		t.violate("%s: no operation succeeded after %s; the last one: %s", resource, since, failure)
	case first-from > int64(v.Progress):
		t.violate("%s: no operation succeeded for %v after %s", resource, time.Duration(first-from).Round(time.Millisecond), since)
	}
}

// starved reports whether it did not succeed, though it took at least the bound.
func (op *operation) starved(bound int64) bool {
	return !op.succeeded() && (op.ended == 0 || op.ended-op.invoked >= bound)
}

// succeeded reports whether it took effect, or failed only because too little was in stock.
func (op *operation) succeeded() bool {
	return op.end == history.OK || op.end == history.Fail && op.class == history.ClassSoldOut
}
