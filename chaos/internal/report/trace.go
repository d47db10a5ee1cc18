package report

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// loader reads the files of a run.
type loader func(run *result.Run) ([]history.Event, *observe.Observation, error)

// trace is a run with its history and what was observed.
type trace struct {
	run      *result.Run
	events   []history.Event
	observed *observe.Observation
}

// trace reads a run; it returns nil if the files of the run were not kept.
func (load loader) trace(run *result.Run) (*trace, error) {
	events, observed, err := load(run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", run, err)
	}
	return &trace{run, events, observed}, nil
}

// scarce reports whether so much was sold that the figures show the remaining stock.
// Otherwise they show the balance.
func (t *trace) scarce() bool {
	for _, l := range remaining(t.events, t.observed) {
		if l.lowest() <= l.initial/4 {
			return true
		}
	}
	return false
}

// levels are the levels that a figure shows.
func (t *trace) levels(scarce bool) []level {
	if scarce {
		return remaining(t.events, t.observed)
	}
	return balance(t.events, t.observed)
}

// measureOf says what a figure of levels shows.
func measureOf(scarce bool) string {
	if scarce {
		return "remaining stock"
	}
	return "remaining stock minus the stock column: 0 if no update was lost"
}
