package report

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// sideBySide are the groups under the schedule of one scenario and seed.
type sideBySide struct {
	Scenario string
	About    string
	Seed     uint64
	Measure  string
	Cells    []cell // Fencekit's first
}

// cell is one group's run.
type cell struct {
	Title   string
	Figure  template.HTML // empty if there is nothing to draw
	Summary string        // what became of it
	Class   string        // ok, bad, broke, green, nothing
}

// maxRows bounds the scenarios that are drawn.
const maxRows = 60

// rowsOf puts the groups of each scenario side by side, the example's scenario first.
func rowsOf(suite *result.Suite, load loader, first string) ([]sideBySide, error) {
	var rows []sideBySide
	for _, scenario := range scenarios(suite, first) {
		runs := oneSeed(suite, scenario)
		if len(runs) == 0 || len(rows) == maxRows {
			continue
		}
		row, err := rowOf(suite, load, runs)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// scenarios are the names of the scenarios that ran, first ahead of the others.
func scenarios(suite *result.Suite, first string) []string {
	var names []string
	for _, s := range suite.Scenarios {
		names = append(names, s.Name)
	}
	for _, r := range suite.Runs {
		names = append(names, r.Scenario)
	}
	names = append([]string{first}, names...)
	ran := map[string]bool{}
	for _, r := range suite.Runs {
		ran[r.Scenario] = true
	}
	var out []string
	for _, name := range names {
		if ran[name] {
			out = append(out, name)
			ran[name] = false
		}
	}
	return out
}

// oneSeed returns the runs of a scenario with faults and the most instructive seed: one with
// a violation of Fencekit, or else with the most controls that broke.
func oneSeed(suite *result.Suite, scenario string) []*result.Run {
	bySeed := map[uint64][]*result.Run{}
	for i := range suite.Runs {
		if r := &suite.Runs[i]; r.Scenario == scenario && r.Faults {
			bySeed[r.Seed] = append(bySeed[r.Seed], r)
		}
	}
	var best []*result.Run
	for _, seed := range slices.Sorted(maps.Keys(bySeed)) {
		if runs := bySeed[seed]; best == nil || shows(runs) > shows(best) {
			best = runs
		}
	}
	order := map[string]int{result.Fenced: -1}
	for i, g := range suite.Groups {
		if g.Name != result.Fenced {
			order[g.Name] = i
		}
	}
	slices.SortStableFunc(best, func(a, b *result.Run) int {
		return cmp.Or(cmp.Compare(order[a.Group], order[b.Group]), cmp.Compare(a.Group, b.Group))
	})
	return best
}

func shows(runs []*result.Run) int {
	points := 0
	for _, r := range runs {
		switch {
		case r.Group == result.Fenced && r.Verdict == result.Violated:
			points += 1000
		case r.Group == result.Fenced:
			points += 100
		case r.Red():
			points++
		}
	}
	return points
}

func rowOf(suite *result.Suite, load loader, runs []*result.Run) (sideBySide, error) {
	row := sideBySide{Scenario: runs[0].Scenario, About: about(suite, runs[0].Scenario), Seed: runs[0].Seed}
	type drawn struct {
		left, balance []level
		from, to      int64
	}
	all := make([]drawn, len(runs))
	scarce := false
	for i, run := range runs {
		t, err := load.trace(run)
		if err != nil {
			return row, err
		}
		if t == nil || len(t.events) == 0 {
			continue
		}
		all[i] = drawn{left: t.levels(true), balance: t.levels(false)}
		all[i].from, all[i].to = bounds(t.events)
		scarce = scarce || t.scarce()
	}
	row.Measure = measureOf(scarce)
	for i, run := range runs {
		c := cell{Title: title(suite, run.Group), Summary: summary(run), Class: class(run)}
		levels := all[i].balance
		if scarce {
			levels = all[i].left
		}
		if len(levels) > 0 {
			c.Figure = drawSmall(fmt.Sprintf("%s, %s: %s", row.Scenario, c.Title, c.Summary), levels, all[i].from, all[i].to)
		}
		row.Cells = append(row.Cells, c)
	}
	return row, nil
}

// words is what became of a run, in a few words.
func summary(r *result.Run) string {
	if r.Verdict == result.Inconclusive {
		return "inconclusive"
	}
	if r.Verdict == result.Pass && r.Group == result.Fenced {
		return "held: 0 oversold, 0 lost"
	}
	if r.Verdict == result.Pass {
		return "not broken by this seed"
	}
	var parts []string
	if r.Counts.Oversold > 0 {
		parts = append(parts, thousands(r.Counts.Oversold)+" oversold")
	}
	if r.Counts.Lost > 0 {
		parts = append(parts, count(r.Counts.Lost, "update lost", "updates lost"))
	}
	switch {
	case r.Group != result.Fenced && !r.Red():
		return "not broken: violated in " + strings.Join(r.Broke(), ", ") + " alone"
	case len(parts) == 0:
		parts = append(parts, "broke "+strings.Join(r.Broke(), ", "))
	}
	return strings.Join(parts, ", ")
}

// class is the CSS class of a run: a control that breaks is as expected.
func class(r *result.Run) string {
	switch {
	case r.Verdict == result.Inconclusive:
		return "nothing"
	case r.Group != result.Fenced && r.Red():
		return "broke"
	case r.Group != result.Fenced && r.Verdict == result.Violated:
		return "nothing"
	case r.Group != result.Fenced:
		return "green"
	case r.Verdict == result.Violated:
		return "bad"
	}
	return "ok"
}

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

// property is a property's findings in all runs under Fencekit.
type property struct {
	Name, Title                           string
	Held, Violated, Unchecked, Irrelevant int
	Class                                 string
	Detail                                string   // of the first run with the worst finding
	Examples                              []string // counterexamples with their run, the first few

	rank int // of Detail
}

// maxExamples bounds the counterexamples of a property.
const maxExamples = 8

// propertiesOf adds up findings, in the order of the first run.
func propertiesOf(suite *result.Suite) []*property {
	var all []*property
	byName := map[string]*property{}
	for i := range suite.Runs {
		r := &suite.Runs[i]
		if r.Group != result.Fenced {
			continue
		}
		for _, f := range r.Findings {
			p := byName[f.Property]
			if p == nil {
				p = &property{Name: f.Property, Title: f.Title}
				byName[f.Property] = p
				all = append(all, p)
			}
			p.add(r, f)
		}
	}
	for _, p := range all {
		switch {
		case p.Violated > 0:
			p.Class = "bad"
		case p.Unchecked > 0:
			p.Class = "nothing"
		case p.Held > 0:
			p.Class = "ok"
		}
	}
	return all
}

func (p *property) add(r *result.Run, f check.Finding) {
	rank := 0
	switch f.Status {
	case check.Held:
		p.Held++
		rank = 1
	case check.Violated:
		p.Violated++
		rank = 3
	case check.Irrelevant:
		p.Irrelevant++
	default:
		p.Unchecked++
		rank = 2
	}
	if p.Detail == "" && rank == 0 {
		p.Detail = cut(f.Detail)
	}
	if rank > p.rank {
		p.rank, p.Detail = rank, cut(fmt.Sprintf("%s: %s", r, f.Detail))
	}
	for _, e := range f.Examples {
		if len(p.Examples) < maxExamples {
			p.Examples = append(p.Examples, cut(fmt.Sprintf("%s: %s", r, e)))
		}
	}
}

// schedule is the faults of a scenario by a seed, and the runs of all groups with it.
type schedule struct {
	Scenario string
	Seed     uint64
	Faults   bool
	Steps    []string
	More     int // number of steps that are left out
	Runs     []runLine
}

// runLine is one run.
type runLine struct {
	Group, Verdict, Class, Reason, Dir string
	Figures                            string
}

// How many runs, and steps of a schedule, are listed at most.
const (
	maxRuns  = 2500
	maxSteps = 40
)

// schedulesOf lists runs by schedule, Fencekit's runs that did not pass first, and
// returns how many runs are left out.
func schedulesOf(suite *result.Suite) (all []*schedule, more int) {
	bySchedule := map[string]*schedule{}
	listed := 0
	for _, failed := range []bool{true, false} {
		for i := range suite.Runs {
			r := &suite.Runs[i]
			if (r.Group == result.Fenced && r.Verdict != result.Pass) != failed {
				continue
			}
			if listed == maxRuns {
				more++
				continue
			}
			listed++
			s := bySchedule[sameSchedule(r)]
			if s == nil {
				s = scheduleOf(r)
				bySchedule[sameSchedule(r)] = s
				all = append(all, s)
			}
			s.Runs = append(s.Runs, lineOf(suite, r))
		}
	}
	return all, more
}

func scheduleOf(r *result.Run) *schedule {
	s := &schedule{Scenario: r.Scenario, Seed: r.Seed, Faults: r.Faults}
	if !r.Faults {
		s.Steps = []string{"no faults"}
		return s
	}
	for i, step := range r.Schedule {
		if i == maxSteps {
			s.More = len(r.Schedule) - i
			break
		}
		line := fmt.Sprintf("%s %s", seconds(step.At), cut(step.Fault))
		if step.For > 0 {
			line += " for " + seconds(step.For)
		}
		s.Steps = append(s.Steps, line)
	}
	if len(s.Steps) == 0 {
		s.Steps = []string{"a script: see the run's history"}
	}
	return s
}

func lineOf(suite *result.Suite, r *result.Run) runLine {
	c := r.Counts
	figures := []string{count(c.Operations, "operation", "operations"), count(c.Faults, "fault", "faults")}
	for _, f := range []struct {
		n         int
		one, many string
	}{{c.Rejections, "rejection", "rejections"}, {c.Unknown, "unknown", "unknown"}, {c.Oversold, "oversold", "oversold"}, {c.Lost, "update lost", "updates lost"}} {
		if f.n > 0 {
			figures = append(figures, count(f.n, f.one, f.many))
		}
	}
	line := runLine{Group: title(suite, r.Group), Verdict: string(r.Verdict), Class: class(r), Dir: r.Dir, Figures: strings.Join(figures, ", ")}
	if r.Verdict != result.Pass {
		line.Reason = cut(r.Reason)
	}
	return line
}

// timing is the quantiles of the runs of a scenario under Fencekit.
type timing struct {
	Scenario string
	Latency  result.Quantiles
	HandOver result.Quantiles
	Figure   template.HTML // of both
}

// timingsOf returns the timings of each scenario with faults, and of all without.
func timingsOf(suite *result.Suite) []timing {
	calm := "without faults"
	runs := map[string][]result.Run{}
	var names []string
	for _, r := range suite.Runs {
		name := r.Scenario
		if !r.Faults {
			name = calm
		}
		if r.Group == result.Fenced {
			runs[name] = append(runs[name], r)
		}
	}
	for _, name := range append(scenarios(suite, ""), calm) {
		if len(runs[name]) > 0 {
			names = append(names, name)
		}
	}
	longest := time.Duration(0)
	var timings []timing
	for _, name := range names {
		sum := result.Sum(runs[name])
		timings = append(timings, timing{Scenario: name, Latency: sum.Latency, HandOver: sum.HandOver})
		longest = max(longest, sum.Latency.Max, sum.HandOver.Max)
	}
	for i := range timings {
		timings[i].Figure = drawQuantiles(timings[i], longest)
	}
	return timings
}

// drawQuantiles draws a bar from p50 to p99 for latency and for hand-over, with a
// mark at the maximum, from 0.1 ms on and in powers of ten.
func drawQuantiles(t timing, longest time.Duration) template.HTML {
	const width, height = 300, 30
	d := newDrawing(width, height, fmt.Sprintf("%s: latency p50 %s, p99 %s; hand-over p50 %s, p99 %s", t.Scenario,
		seconds(t.Latency.P50), seconds(t.Latency.P99), seconds(t.HandOver.P50), seconds(t.HandOver.P99)))
	log := func(v time.Duration) float64 { return math.Log10(max(v.Seconds(), 1e-4)) }
	x := scale{-4, math.Ceil(max(log(longest), -3)), 4, width - 4}
	for tick := x.fromValue; tick <= x.toValue; tick++ {
		d.line("grid", x.at(tick), 0, x.at(tick), height)
	}
	for i, q := range []result.Quantiles{t.Latency, t.HandOver} {
		if q.Count == 0 {
			continue
		}
		y := 5 + float64(i)*13
		class := []string{"latency", "handover"}[i]
		d.rect(class, x.at(log(q.P50)), y, max(2, x.at(log(q.P99))-x.at(log(q.P50))), 7, "from p50 to p99")
		d.rect(class, x.at(log(q.P90))-0.5, y-2, 1.5, 11, "p90")
		d.circle(class, x.at(log(q.Max)), y+3.5, 3, "the maximum")
	}
	return d.done()
}

// Both are the quantiles in the order of the table.
func (t timing) Both() []result.Quantiles { return []result.Quantiles{t.Latency, t.HandOver} }
