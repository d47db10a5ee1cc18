package report

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strings"

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
