package report

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// loader reads what was kept of a run.
type loader func(run *result.Run) ([]history.Event, *observe.Observation, error)

// told is a run with what is known of it.
type told struct {
	run      *result.Run
	events   []history.Event
	observed *observe.Observation
}

// tell reads a run; nil if its files were not kept.
func (load loader) tell(run *result.Run) (*told, error) {
	events, observed, err := load(run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", run, err)
	}
	return &told{run, events, observed}, nil
}

// scarce reports whether so much was sold that the remaining stock tells
// something. Else the balance does.
func (t *told) scarce() bool {
	for _, l := range remaining(t.events, t.observed) {
		if l.lowest() <= l.initial/4 {
			return true
		}
	}
	return false
}

// levels are those that a figure shows.
func (t *told) levels(scarce bool) []level {
	if scarce {
		return remaining(t.events, t.observed)
	}
	return balance(t.events, t.observed)
}

// measureOf says what a figure of levels shows.
func measureOf(scarce bool) string {
	if scarce {
		return "stock that remains"
	}
	return "stock that remains, less what the books say: 0 if every order was booked"
}
