package environment

import (
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// WithoutOutcome returns an error if operations had no outcome. The error says how many,
// and why the first one had none.
func (s *Environment) WithoutOutcome() error {
	var first *history.Event
	number := 0
	for _, e := range s.cfg.Trace.Events() {
		if e.Kind == history.Unknown && e.Class == worker.ClassNoOutcome {
			if number++; first == nil {
				first = &e
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("chaos: %d operations of workload %q had no outcome; the first was %s: %s; for its stack see %s.log",
		number, s.cfg.Workload.Name(), first.Op, first.Error, first.Process)
}
