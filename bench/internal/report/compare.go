// Package report shows what a run found: a table in Markdown, and a page in HTML that needs
// nothing but itself.
package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/scenario"
	"github.com/fencekit/fencekit/bench/internal/stats"
)

// best returns which of the baselines had the highest median rate, or "" if none ran.
func best(run *result.Run, s scenario.Scenario, baseline []string, regime result.Regime) string {
	name, rate := "", math.Inf(-1)
	for _, b := range baseline {
		if spread := stats.Of(slices.Collect(values(run.Values(s.Name, b, regime, result.Rate)))); spread.Count > 0 && spread.Median > rate {
			name, rate = b, spread.Median
		}
	}
	return name
}

func values(byRound map[int]float64) func(func(float64) bool) {
	return func(yield func(float64) bool) {
		for _, v := range byRound {
			if !yield(v) {
				return
			}
		}
	}
}

// spreadOf returns a metric of a contender over the rounds.
func spreadOf(run *result.Run, s scenario.Scenario, contender string, regime result.Regime, m result.Metric) stats.Spread {
	return stats.Of(slices.Collect(values(run.Values(s.Name, contender, regime, m))))
}

// figure is what a comparison came to in one regime.
type figure struct {
	spread   stats.Spread
	baseline string // which one, if there was a choice
	bound    scenario.Bound
	bounded  bool
	few      bool // withheld: a side did too few operations for a ratio of rates
}

// fewOperations is how many operations in a round make a rate that is more than noise.
const fewOperations = 20

// tooFew reports whether a contender did fewer than fewOperations in the median round. Of results
// that lack the number it returns false.
func tooFew(run *result.Run, s scenario.Scenario, contender string, regime result.Regime) bool {
	n := spreadOf(run, s, contender, regime, result.Operations)
	return n.Count > 0 && n.Median < fewOperations
}

// compare returns what a Must came to in a regime; its spread has no values if it wasn't
// measured there, or is withheld.
func compare(run *result.Run, s scenario.Scenario, m scenario.Must, regime result.Regime) figure {
	var f figure
	f.bound, f.bounded = m.Bounds[regime]
	of := run.Values(s.Name, m.Contender, regime, m.Metric)
	if m.Compared == scenario.Absolute {
		f.spread = stats.Of(slices.Collect(values(of)))
		return f
	}
	baseline := m.Baseline
	if baseline == nil {
		baseline = s.Baseline
	}
	f.baseline = best(run, s, baseline, regime)
	against := run.Values(s.Name, f.baseline, regime, m.Metric)
	if m.Metric == result.Rate && (tooFew(run, s, m.Contender, regime) || tooFew(run, s, f.baseline, regime)) {
		f.few = true
		return f
	}
	if m.Compared == scenario.AsDifference {
		f.spread = stats.Of(stats.Differences(of, against))
	} else {
		f.spread = stats.Of(stats.Ratios(of, against))
	}
	return f
}

// verdict is whether a figure reached its bounds.
type verdict string

const (
	notMeasured verdict = ""
	unbounded   verdict = "no bound"
	missed      verdict = "missed"
	reached     verdict = "reached"
	aimReached  verdict = "aim reached"
)

func (f figure) verdict(atMost bool) verdict {
	within := func(bound float64) bool {
		if atMost {
			return f.spread.Median <= bound
		}
		return f.spread.Median >= bound
	}
	switch {
	case f.spread.Count == 0:
		return notMeasured
	case !f.bounded:
		return unbounded
	case f.bound.Aim != 0 && within(f.bound.Aim):
		return aimReached
	case within(f.bound.Least):
		return reached
	default:
		return missed
	}
}

// number writes a value with three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 10000:
		return grouped(math.Round(v))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// grouped writes thousands apart.
func grouped(v float64) string {
	digits := fmt.Sprintf("%.0f", math.Abs(v))
	var text strings.Builder
	if v < 0 {
		text.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			text.WriteByte(',')
		}
		text.WriteRune(d)
	}
	return text.String()
}

// text is the figure with its spread, or why there is none.
func (f figure) text() string {
	if f.few {
		return fmt.Sprintf("withheld (fewer than %d operations in a round)", fewOperations)
	}
	return spreadText(f.spread)
}

// spreadText is "0.42 [0.36..0.50]".
func spreadText(s stats.Spread) string {
	switch s.Count {
	case 0:
		return "-"
	case 1:
		return number(s.Median) + " (one round)"
	}
	return fmt.Sprintf("%s [%s..%s]", number(s.Median), number(s.Min), number(s.Max))
}
