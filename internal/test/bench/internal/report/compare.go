// Package report shows what a run found, in Markdown.
package report

import (
	"fmt"
	"math"

	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
)

// view is a scenario as it was run in one regime.
type view struct {
	run    *result.Run
	s      scenario.Scenario
	regime result.Regime
}

func (v view) spread(contender string, m result.Metric) result.Spread {
	return v.run.Spread(v.s.Name, contender, v.regime, m)
}

// best returns which of the contenders had the highest median rate, or "" if none ran.
func (v view) best(contenders []string) string {
	name, rate := "", math.Inf(-1)
	for _, c := range contenders {
		if spread := v.spread(c, result.Rate); spread.Count > 0 && spread.Median > rate {
			name, rate = c, spread.Median
		}
	}
	return name
}

// fewOperations is how many operations in a round make a rate that is more than noise.
const fewOperations = 20

// tooFew reports whether a contender did fewer than fewOperations in the median round. Of results
// that lack the number it returns false.
func (v view) tooFew(contender string) bool {
	n := v.spread(contender, result.Operations)
	return n.Count > 0 && n.Median < fewOperations
}

// figure is what a comparison came to in one regime.
type figure struct {
	result.Spread
	Against string
	few     bool // withheld: a side did too few operations for a ratio of rates
}

func (v view) compare(r scenario.Ratio) figure {
	f := figure{Against: r.Against, few: r.Metric == result.Rate && (v.tooFew(r.Contender) || v.tooFew(r.Against))}
	if !f.few {
		of, against := v.run.Values(v.s.Name, r.Contender, v.regime, r.Metric), v.run.Values(v.s.Name, r.Against, v.regime, r.Metric)
		f.Spread = result.Of(result.Ratios(of, against))
	}
	return f
}

// Text is the figure with its spread, or why there is none.
func (f figure) Text() string {
	if f.few {
		return fmt.Sprintf("withheld (fewer than %d operations in a round)", fewOperations)
	}
	return spreadText(f.Spread)
}

// spreadText is "0.42 [0.36..0.50]".
func spreadText(s result.Spread) string {
	switch s.Count {
	case 0:
		return "-"
	case 1:
		return number(s.Median) + " (one round)"
	}
	return fmt.Sprintf("%s [%s..%s]", number(s.Median), number(s.Min), number(s.Max))
}

// number writes a value with three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
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
