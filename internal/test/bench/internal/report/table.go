package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"text/template"

	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
)

var (
	//go:embed table.md
	tableText string

	tableTemplate = template.Must(template.New("table").Parse(tableText))
)

// Markdown writes the table of ratios, and for each scenario that was run one of
// all contenders.
func Markdown(w io.Writer, run *result.Run, all []scenario.Scenario) error {
	return tableTemplate.Execute(w, newPage(run, all))
}

type page struct {
	Heading   string
	Regimes   []result.Regime
	Ratios    []ratioRow
	Scenarios []section
	Failures  []string
}

// ratioRow is a row of the table of ratios.
type ratioRow struct {
	Scenario string
	scenario.Ratio
	Figures []figure // by regime
}

// section is a scenario.
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

// row is a contender in one regime.
type row struct {
	Contender string
	Rate      result.Spread
	Few       string // that it did too few operations for a rate
	Ratio     figure
	Values    []string // of the section's metrics
	Lost      string
}

func newPage(run *result.Run, all []scenario.Scenario) page {
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
		for _, ratio := range s.Ratios {
			line := ratioRow{Scenario: s.Title, Ratio: ratio}
			for _, r := range p.Regimes {
				line.Figures = append(line.Figures, view{run, s, r}.compare(ratio))
			}
			p.Ratios = append(p.Ratios, line)
		}
	}
	for _, c := range run.Cells {
		if c.Err != "" {
			p.Failures = append(p.Failures, c.Scenario+", "+c.Contender+", "+c.Regime.String()+": "+c.Err)
		}
	}
	return p
}

func heading(run *result.Run) string {
	return fmt.Sprintf("%s, %s: %d rounds of %g s; %s; commit %s.",
		run.Began.UTC().Format("2006-01-02 15:04 UTC"), run.Machine, run.Rounds, run.Seconds, run.Versions, run.Commit)
}

func regimesOf(run *result.Run) (regimes []result.Regime) {
	for _, c := range run.Cells {
		if !slices.Contains(regimes, c.Regime) {
			regimes = append(regimes, c.Regime)
		}
	}
	return regimes
}

func (v view) part() part {
	p := part{Regime: v.regime}
	baseline := v.best(v.s.Baseline)
	for _, c := range v.s.Contenders {
		r := row{Contender: c.Name, Rate: v.spread(c.Name, result.Rate)}
		p.Measured = p.Measured || r.Rate.Count > 0
		if c.Name != baseline && baseline != "" {
			r.Ratio = v.compare(scenario.Ratio{Contender: c.Name, Against: baseline, Metric: result.Rate})
		}
		if v.tooFew(c.Name) {
			r.Few = fmt.Sprintf(" (%.0f operations a round)", v.spread(c.Name, result.Operations).Median)
		}
		if lost := v.spread(c.Name, result.Lost); lost.Max != 0 {
			r.Lost = number(lost.Max)
		}
		for _, m := range v.s.Metrics {
			text := "-"
			if s := v.spread(c.Name, m); s.Count > 0 {
				text = number(s.Median)
			}
			r.Values = append(r.Values, text)
		}
		p.Rows = append(p.Rows, r)
	}
	return p
}

// Cell is "1,234/s, × 0.42 [0.36..0.50]", and what was lost in one round.
func (r row) Cell() string {
	if r.Rate.Count == 0 {
		return "-"
	}
	text := number(r.Rate.Median) + "/s" + r.Few
	if r.Ratio.Against != "" {
		text += ", × " + r.Ratio.Text()
	}
	if r.Lost != "" {
		text += ", LOST " + r.Lost
	}
	return text
}

// unitOf is a metric's unit, as it follows its name.
func unitOf(m result.Metric) string {
	switch m {
	case result.Allocations:
		return ""
	case result.WAL:
		return ", B"
	default:
		return ", µs"
	}
}
