// Package report shows what a run found, as tables in Markdown.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"math"
	"slices"
	"text/template"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/scenario"
)

var (
	//go:embed table.md
	text  string
	table = template.Must(template.New("table").Parse(text))
)

// Markdown writes the comparisons, and for each scenario that was run a table of all contenders in each regime.
func Markdown(w io.Writer, run *result.Run, all []scenario.Scenario) error {
	p := page{Heading: heading(run), Regimes: regimesOf(run)}
	for _, s := range all {
		if !slices.ContainsFunc(run.Cells, func(c result.Cell) bool { return c.Scenario == s.Name }) {
			continue
		}
		sec := section{Scenario: s}
		for _, m := range s.Metrics {
			sec.Headers = append(sec.Headers, string(m)+unitOf(m))
		}
		for _, r := range p.Regimes {
			sec.Parts = append(sec.Parts, view{run, s, r}.part())
		}
		p.Scenarios = append(p.Scenarios, sec)
		for _, c := range s.Comparisons {
			line := comparison{Row: c.Row}
			for _, r := range p.Regimes {
				line.Figures = append(line.Figures, view{run, s, r}.compare(c))
			}
			p.Comparisons = append(p.Comparisons, line)
		}
	}
	for _, c := range run.Cells {
		if c.Err != "" {
			p.Failures = append(p.Failures, c.Scenario+", "+c.Contender+", "+c.Regime.String()+": "+c.Err)
		}
	}
	return table.Execute(w, p)
}

type page struct {
	Heading     string
	Regimes     []result.Regime
	Comparisons []comparison
	Scenarios   []section
	Failures    []string
}

type comparison struct {
	Row     string
	Figures []string // by regime
}

type section struct {
	scenario.Scenario
	Headers []string // of its metrics
	Parts   []part   // by regime
}

// part is a scenario in one regime.
type part struct {
	Regime   result.Regime
	Measured bool
	Rows     []row // by contender
}

type row struct {
	Contender, Rate, Ratio string
	Values                 []string // of the section's metrics
}

// view is a scenario as it was run in one regime.
type view struct {
	run    *result.Run
	s      scenario.Scenario
	regime result.Regime
}

func (v view) spread(contender string, m result.Metric) result.Spread {
	return v.run.Spread(v.s.Name, contender, v.regime, m)
}

func (v view) part() part {
	p := part{Regime: v.regime}
	baseline := v.best(v.s.Baseline)
	for _, c := range v.s.Contenders {
		r := row{Contender: c.Name, Rate: spreadText(v.spread(c.Name, result.Rate)), Ratio: "baseline"}
		p.Measured = p.Measured || r.Rate != "-"
		if c.Unsafe != "" {
			r.Contender += " (" + c.Unsafe + ")"
		}
		if lost := v.spread(c.Name, result.Lost); lost.Max != 0 {
			r.Contender += ", LOST " + number(lost.Max) + " in one round"
		}
		if n := v.spread(c.Name, result.Operations); v.tooFew(c.Name) {
			r.Rate += fmt.Sprintf(" (%.0f operations a round)", n.Median)
		}
		if c.Name != baseline {
			r.Ratio = v.compare(scenario.Comparison{Contender: c.Name, Metric: result.Rate, Compared: scenario.AsRatio})
		}
		for _, m := range v.s.Metrics {
			value := "-"
			if s := v.spread(c.Name, m); s.Count > 0 {
				value = number(s.Median)
			}
			r.Values = append(r.Values, value)
		}
		p.Rows = append(p.Rows, r)
	}
	return p
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

// compare is what a comparison came to, within each round.
func (v view) compare(c scenario.Comparison) string {
	of := v.run.Values(v.s.Name, c.Contender, v.regime, c.Metric)
	baseline := c.Baseline
	if baseline == nil {
		baseline = v.s.Baseline
	}
	best := v.best(baseline)
	against := v.run.Values(v.s.Name, best, v.regime, c.Metric)
	switch {
	case c.Compared == scenario.Absolute:
		return spreadText(v.spread(c.Contender, c.Metric))
	case c.Compared == scenario.AsDifference:
		return spreadText(result.Of(result.Differences(of, against)))
	case c.Metric == result.Rate && (v.tooFew(c.Contender) || v.tooFew(best)):
		return fmt.Sprintf("withheld (fewer than %d operations in a round)", fewOperations)
	default:
		return spreadText(result.Of(result.Ratios(of, against)))
	}
}

// busyPercent of the machine's CPU time used by others make a run's figures rough.
const busyPercent = 20

func heading(run *result.Run) string {
	var others []float64
	for _, c := range run.Cells {
		if v, ok := c.Values[result.Others]; ok {
			others = append(others, 100*v)
		}
	}
	busy, rough := result.Of(others), ""
	if busy.Median > busyPercent {
		rough = fmt.Sprintf(" Above %d%% rates and ratios are rough: repeat the run on a machine that does nothing else.", busyPercent)
	}
	return fmt.Sprintf("%s, %s: %d rounds of %g s; %s; commit %s. Others used %s%% of the machine's CPU time during the cells.%s",
		run.Began.UTC().Format("2006-01-02 15:04 UTC"), run.Machine, run.Rounds, run.Seconds, run.Versions, run.Commit, spreadText(busy), rough)
}

func regimesOf(run *result.Run) (regimes []result.Regime) {
	for _, c := range run.Cells {
		if !slices.Contains(regimes, c.Regime) {
			regimes = append(regimes, c.Regime)
		}
	}
	slices.SortFunc(regimes, func(a, b result.Regime) int { return cmp.Compare(a.String(), b.String()) })
	return regimes
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

// unitOf is a metric's unit, as it follows its name.
func unitOf(m result.Metric) string {
	switch m {
	case result.FairShare, result.Retries, result.Writes, result.Allocations, result.GoroutinesN, result.Lasting, result.Pruned, result.Anchored:
		return ""
	case result.WAL, result.WrittenBytes, result.AllocatedB, result.Grown, result.BytesEach:
		return ", B"
	case result.KeepAlives:
		return " /s"
	default:
		return ", µs"
	}
}
