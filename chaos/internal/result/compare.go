package result

import (
	"cmp"
	"slices"
)

// Comparison is two suites side by side.
type Comparison struct {
	Verdicts [2]Verdict      `json:"verdicts"`
	Reasons  [2]string       `json:"reasons"`
	Rows     []ComparisonRow `json:"rows"`
}

// ComparisonRow has the figures of a scenario's runs by a group in both suites. A suite
// without such runs has no figures.
type ComparisonRow struct {
	Scenario string    `json:"scenario"`
	Group    string    `json:"group"`
	Faults   bool      `json:"faults"`
	Sides    [2]Totals `json:"sides"`
}

// Compare puts two suites side by side, scenario by scenario and group by group.
func Compare(a, b *Suite) *Comparison {
	c := &Comparison{Verdicts: [2]Verdict{a.Verdict, b.Verdict}, Reasons: [2]string{a.Reason, b.Reason}}
	type key struct {
		scenario, group string
		faults          bool
	}
	runs := map[key]*[2][]Run{}
	for side, suite := range []*Suite{a, b} {
		for _, r := range suite.Runs {
			k := key{r.Scenario, r.Group, r.Faults}
			if runs[k] == nil {
				runs[k] = &[2][]Run{}
			}
			runs[k][side] = append(runs[k][side], r)
		}
	}
	for k, sides := range runs {
		c.Rows = append(c.Rows, ComparisonRow{k.scenario, k.group, k.faults, [2]Totals{Sum(sides[0]), Sum(sides[1])}})
	}
	slices.SortFunc(c.Rows, func(a, b ComparisonRow) int {
		return cmp.Or(cmp.Compare(a.Scenario, b.Scenario), fencedFirst(a.Group, b.Group), falseLast(a.Faults, b.Faults))
	})
	return c
}

func fencedFirst(a, b string) int {
	if (a == Fenced) != (b == Fenced) {
		return falseLast(a == Fenced, b == Fenced)
	}
	return cmp.Compare(a, b)
}

func falseLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
