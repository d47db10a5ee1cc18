package check

import "github.com/fencekit/fencekit/chaos/internal/history"

// acknowledged checks I4. An operation that was later resolved as applied counts as
// acknowledged.
func acknowledged(v *view, t *tally) {
	count := 0
	if len(v.broken) > 0 {
		t.lack("the history of operations is invalid: %s", v.broken[0])
	}
	for _, op := range v.operations {
		if op.outcome() != history.OK {
			continue
		}
		count++
		for _, r := range op.resources {
			if op.effects[r] == 0 {
				t.violate("%s was acknowledged and has no effect on %s", op, r)
			}
		}
	}
	t.look("%d acknowledged operations", count)
}
