package report

import (
	"math"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

// control is a row of the table of controls.
type control struct {
	result.Control
	Title    string
	Broke    string // properties that its runs with faults violated
	Oversold int
	Lost     int
	Class    string
}

func controlsOf(suite *result.Suite) []control {
	var all []control
	for _, c := range suite.Controls() {
		row := control{Control: c, Title: title(suite, c.Group.Name), Class: "broke"}
		var broke []string
		for i := range suite.Runs {
			if r := &suite.Runs[i]; r.Group == c.Group.Name && r.Faults {
				row.Oversold += r.Counts.Oversold
				row.Lost += r.Counts.Lost
				broke = append(broke, r.Broke()...)
			}
		}
		slices.Sort(broke)
		row.Broke = strings.Join(slices.Compact(broke), ", ")
		if c.Doubt() != "" {
			row.Class = "nothing"
		}
		all = append(all, row)
	}
	return all
}

// power is the probability that so many runs show a failure that a share of runs shows.
func power(share float64, runs int) float64 { return 1 - math.Pow(1-share, float64(runs)) }

// weakest is the control, not red by design, that the faults break least often; nil if there
// is none.
func weakest(controls []control) *control {
	var least *control
	for i := range controls {
		c := &controls[i]
		if !c.Group.RedByDesign && c.Faults.Red > 0 && (least == nil || c.Faults.Rate() < least.Faults.Rate()) {
			least = c
		}
	}
	return least
}
