package report

import (
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/scenario"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// HTML writes the page. It refers to nothing outside of itself.
func HTML(w io.Writer, run *result.Run, all []scenario.Scenario) error {
	regimes := regimesOf(run)
	p := pageData{Heading: heading(run), Musts: mustLines(run, all, regimes)}
	for _, r := range regimes {
		p.Regimes = append(p.Regimes, r.String())
	}
	for _, s := range all {
		if ran(run, s) {
			p.Scenarios = append(p.Scenarios, sectionOf(run, s, regimes))
		}
	}
	for _, c := range run.Cells {
		if c.Err != "" {
			p.Failures = append(p.Failures, c.Scenario+", "+c.Contender+", "+c.Regime.String()+": "+c.Err)
		}
	}
	return page.Execute(w, p)
}

type pageData struct {
	Heading   string
	Regimes   []string
	Musts     []mustLine
	Scenarios []section
	Failures  []string
}

// mustLine is a row of the table of what has to be shown.
type mustLine struct {
	Row     string
	Figures []mustFigure
}

type mustFigure struct {
	Class, Mark, Median, Spread, Bound, Against string
}

func mustLines(run *result.Run, all []scenario.Scenario, regimes []result.Regime) (lines []mustLine) {
	for _, s := range all {
		if !ran(run, s) {
			continue
		}
		for _, m := range s.Musts {
			line := mustLine{Row: m.Row}
			for _, r := range regimes {
				line.Figures = append(line.Figures, figureOf(compare(run, s, m, r), m))
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func figureOf(f figure, m scenario.Must) mustFigure {
	v := f.verdict(m.AtMost)
	if v == notMeasured {
		return mustFigure{Class: "none", Median: f.text(), Bound: limit(f, m)}
	}
	shown := mustFigure{
		Class:  strings.ReplaceAll(string(v), " ", "-"),
		Mark:   marks[v],
		Median: number(f.spread.Median),
		Spread: number(f.spread.Min) + " … " + number(f.spread.Max),
		Bound:  limit(f, m),
	}
	if m.Compared != scenario.Absolute {
		shown.Against = "against " + f.baseline
	}
	return shown
}

// limit is the bound in words.
func limit(f figure, m scenario.Must) string {
	if !f.bounded {
		return ""
	}
	return boundText(f.bound, m.AtMost)
}

// section is a scenario on the page.
type section struct {
	Name, Title, About string
	Parts              []part
}

// part is a scenario in one regime.
type part struct {
	Regime   string
	Verdict  string
	Timeline template.HTML
	Metrics  []string
	Rows     []tableRow
}

type tableRow struct {
	Contender, Rate, Spread, Ratio, Unsafe string
	Times                                  string // the ratio's median; empty for the baseline
	Ours                                   bool
	Values                                 []string
	Lost                                   string

	// Its bar: as long as its fastest round, in percent of the room that the fastest
	// contender's has, and in it the median and the slowest round, in percent of the bar.
	Length, Median, Least float64
}

func sectionOf(run *result.Run, s scenario.Scenario, regimes []result.Regime) section {
	sec := section{Name: s.Name, Title: s.Title, About: s.About}
	for _, r := range regimes {
		if rows := tableRows(run, s, r); len(rows) > 0 {
			p := part{Regime: r.String(), Verdict: faster(run, s, r), Rows: rows}
			if s.Long {
				p.Timeline = lines(linesOf(run, s, r))
			}
			for _, m := range s.Metrics {
				p.Metrics = append(p.Metrics, headerOf(m))
			}
			sec.Parts = append(sec.Parts, p)
		}
	}
	return sec
}

// barRoom is what the longest bar takes of the width, in percent; its figures follow it.
const barRoom = 45

func tableRows(run *result.Run, s scenario.Scenario, r result.Regime) (rows []tableRow) {
	most := 0.0
	for _, c := range s.Contenders {
		most = max(most, spreadOf(run, s, c.Name, r, result.Rate).Max)
	}
	for _, c := range s.Contenders {
		rate := spreadOf(run, s, c.Name, r, result.Rate)
		if rate.Count == 0 {
			continue
		}
		row := tableRow{Contender: c.Name, Ours: c.Fencekit, Unsafe: c.Unsafe, Rate: number(rate.Median), Spread: number(rate.Min) + " … " + number(rate.Max)}
		if rate.Max > 0 {
			row.Length, row.Median, row.Least = barRoom*rate.Max/most, 100*rate.Median/rate.Max, 100*rate.Min/rate.Max
		}
		if best(run, s, s.Baseline, r) == c.Name {
			row.Ratio = "baseline"
		} else if s.Baseline != nil {
			f := compare(run, s, scenario.Must{Contender: c.Name, Metric: result.Rate, Compared: scenario.AsRatio}, r)
			if row.Ratio = f.text(); f.spread.Count > 0 {
				row.Times = number(f.spread.Median)
			}
		}
		if lost := spreadOf(run, s, c.Name, r, result.Lost); lost.Max != 0 {
			row.Lost = number(lost.Max)
		}
		for _, m := range s.Metrics {
			text := "-"
			if v := spreadOf(run, s, c.Name, r, m); v.Count > 0 {
				text = number(v.Median)
			}
			row.Values = append(row.Values, text)
		}
		rows = append(rows, row)
	}
	return rows
}

// headerOf is a metric with its unit.
func headerOf(m result.Metric) string {
	switch m {
	case result.FairShare, result.Retries, result.Writes, result.Allocations, result.GoroutinesN, result.Abandoned:
		return string(m)
	case result.WAL, result.WrittenBytes, result.AllocatedB, result.Grown, result.BytesEach:
		return string(m) + ", B"
	case result.KeepAlives:
		return string(m) + " /s"
	default:
		return string(m) + ", µs"
	}
}

// faster says in words how Fencekit's fastest contender did beside the peers.
func faster(run *result.Run, s scenario.Scenario, r result.Regime) string {
	var own, peers []string
	for _, c := range s.Contenders {
		if c.Fencekit {
			own = append(own, c.Name)
		} else {
			peers = append(peers, c.Name)
		}
	}
	mine := best(run, s, own, r)
	if mine == "" || len(peers) == 0 {
		return ""
	}
	var ahead []string
	for _, peer := range peers {
		f := compare(run, s, scenario.Must{Contender: peer, Baseline: []string{mine}, Metric: result.Rate, Compared: scenario.AsRatio}, r)
		if f.spread.Count > 0 && f.spread.Median > 1 {
			ahead = append(ahead, peer+" ("+number(f.spread.Median)+" ×"+unfair(run, s, peer, r)+")")
		}
	}
	if len(ahead) == 0 {
		return "Fastest: " + mine + ", a part of Fencekit."
	}
	slices.Sort(ahead)
	return "Faster than Fencekit's best here, " + mine + ": " + strings.Join(ahead, ", ") + "."
}

// unfair says so if a process got less than half of its share, in the median.
func unfair(run *result.Run, s scenario.Scenario, contender string, r result.Regime) string {
	share := spreadOf(run, s, contender, r, result.FairShare)
	if share.Count == 0 || share.Median >= 0.5 {
		return ""
	}
	return "; one process got " + number(100*share.Median) + "% of its fair share"
}
