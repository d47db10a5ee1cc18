package check

import (
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// operation is what the history says of one operation, and its effects.
type operation struct {
	id, process, action string
	resources           []string
	invoked             int64
	end                 history.Kind    // ok, fail or unknown; empty if it was cut off
	ended               int64           // when it ended or was cut off; 0 if it is open still
	class, failure      string          // of its error, and the error itself
	answers             []history.Event // about an unknown outcome, in order
	effects             map[string]int  // rows in the data, by resource
}

// applied reports whether the data has an effect of it.
func (op *operation) applied() bool { return len(op.effects) > 0 }

// outcome is how it ended, or was resolved later: ok, fail or unknown.
func (op *operation) outcome() history.Kind {
	switch {
	case op.end == history.OK || op.end == history.Fail:
		return op.end
	case len(op.answers) == 0:
		return history.Unknown
	case op.answers[0].Applied:
		return history.OK
	}
	return history.Fail
}

// String names it in counterexamples.
func (op *operation) String() string {
	return fmt.Sprintf("operation %s (%s on %s)", op.id, op.action, op.process)
}

// readOperations puts together the events of each operation.
func (v *view) readOperations() {
	for _, e := range v.Events {
		op := v.byID[e.Op]
		switch e.Kind {
		case history.Ends:
			v.cutOff(e.Process, e.At)
		case history.Invoke:
			if op != nil {
				v.broken = append(v.broken, fmt.Sprintf("%s was invoked a second time, by %s", op, e.Process))
				continue
			}
			op = &operation{id: e.Op, process: e.Process, action: e.Action, resources: e.Resources, invoked: e.At, effects: map[string]int{}}
			v.byID[e.Op] = op
			v.operations = append(v.operations, op)
		case history.OK, history.Fail, history.Unknown:
			if op == nil || op.end != "" {
				v.broken = append(v.broken, fmt.Sprintf("operation %s ended (%s) without being open", e.Op, e.Kind))
				continue
			}
			op.end, op.ended, op.class, op.failure = e.Kind, e.At, e.Class, e.Error
		case history.Answer:
			if op != nil {
				op.answers = append(op.answers, e)
			}
		}
	}
}

// cutOff ends what a process had open when it ended.
func (v *view) cutOff(process string, at int64) {
	for _, op := range v.operations {
		if op.process == process && op.ended == 0 {
			op.ended = at
		}
	}
}
