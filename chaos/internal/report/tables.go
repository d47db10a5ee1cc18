package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

func title(suite *check.Suite, group string) string {
	for _, g := range suite.Groups {
		if g.Name == group && g.Title != "" {
			return g.Title
		}
	}
	return group
}

// class is the CSS class of a run.
func class(r *check.Run) string {
	switch {
	case r.Red():
		return "broke"
	case r.Verdict == check.Inconclusive, r.Verdict == check.Violated && r.Group != check.Fenced:
		return "nothing"
	case r.Group != check.Fenced:
		return "green"
	case r.Verdict == check.Violated:
		return "bad"
	}
	return "ok"
}

type control struct {
	check.ControlResult
	check.Totals        // of its runs with faults
	Title        string // of its group, or the name
	Broke        string // properties that its runs with faults violated
	Class        string
}

func controlsOf(suite *check.Suite) (all []control) {
	for _, c := range suite.Controls() {
		runs := runsOf(suite, func(r check.Run) bool { return r.Group == c.Name && r.Faults })
		broke := map[string]bool{}
		for _, r := range runs {
			for _, property := range r.Broke() {
				broke[property] = true
			}
		}
		row := control{c, check.Sum(runs), title(suite, c.Name), strings.Join(slices.Sorted(maps.Keys(broke)), ", "), "broke"}
		if c.Doubt() != "" {
			row.Class = "nothing"
		}
		all = append(all, row)
	}
	return all
}

type property struct {
	Name, Title string
	Runs        map[string]int // by status
	Class       string
	Detail      string   // of the first run with the worst finding
	Examples    []string // counterexamples with their run, the first few

	worst int // rank of Detail
}

const maxExamples = 8

var (
	ranks   = []check.Status{check.Irrelevant, check.Held, check.Unchecked, check.Flagged}
	classes = []string{"", "ok", "nothing", "bad"}
)

func propertiesOf(runs []check.Run) (all []*property) {
	byName := map[string]*property{}
	for i := range runs {
		r := &runs[i]
		for _, f := range r.Findings {
			p := byName[f.Property]
			if p == nil {
				p = &property{Name: f.Property, Title: f.Title, Runs: map[string]int{}, worst: -1}
				byName[f.Property] = p
				all = append(all, p)
			}
			p.Runs[string(f.Status)]++
			if rank := slices.Index(ranks, f.Status); rank > p.worst {
				p.worst, p.Class, p.Detail = rank, classes[rank], cut(fmt.Sprintf("%s: %s", r, f.Detail))
			}
			for _, e := range f.Examples[:min(len(f.Examples), maxExamples-len(p.Examples))] {
				p.Examples = append(p.Examples, cut(fmt.Sprintf("%s: %s", r, e)))
			}
		}
	}
	return all
}

// schedule is the faults of a scenario by a seed, and the runs of all groups with it.
type schedule struct {
	Scenario string
	About    string
	Seed     uint64
	Faults   bool
	Steps    []string
	Runs     []runLine
}

type runLine struct {
	*check.Run
	Title, Class, Figures string
}

// schedulesOf has those that are not as they must be first.
func schedulesOf(suite *check.Suite) (all []*schedule) {
	var runs []*check.Run
	for i := range suite.Runs {
		runs = append(runs, &suite.Runs[i])
	}
	wrong := func(r *check.Run) int {
		if r.Group == check.Fenced && r.Verdict != check.Pass {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(runs, func(a, b *check.Run) int {
		return cmp.Or(cmp.Compare(wrong(a), wrong(b)), cmp.Compare(a.Counts.Operations, b.Counts.Operations))
	})
	bySchedule := map[string]*schedule{}
	for _, r := range runs {
		same := fmt.Sprintf("%s/%d/%t", r.Scenario, r.Seed, r.Faults)
		s := bySchedule[same]
		if s == nil {
			s = scheduleOf(suite, r)
			bySchedule[same] = s
			all = append(all, s)
		}
		c := r.Counts
		figures := count(c.Operations, "operation", "operations") + ", " + count(c.Faults, "fault", "faults")
		for _, f := range []struct {
			n         int
			one, many string
		}{{c.Rejections, "rejection", "rejections"}, {c.Unknown, "unknown", "unknown"}, {c.Oversold, "oversold", "oversold"}, {c.Lost, "update lost", "updates lost"}} {
			if f.n > 0 {
				figures += ", " + count(f.n, f.one, f.many)
			}
		}
		s.Runs = append(s.Runs, runLine{r, title(suite, r.Group), class(r), figures})
	}
	return all
}

func scheduleOf(suite *check.Suite, r *check.Run) *schedule {
	s := &schedule{Scenario: r.Scenario, Seed: r.Seed, Faults: r.Faults}
	for _, about := range suite.Scenarios {
		if about.Name == r.Scenario {
			s.About = about.Summary
		}
	}
	switch {
	case !r.Faults:
		s.Steps = []string{"no faults"}
		return s
	case len(r.Schedule) == 0:
		s.Steps = []string{"a script: see the run's history"}
	}
	for _, step := range r.Schedule {
		line := seconds(step.At) + " " + cut(step.Fault)
		if step.For > 0 {
			line += " for " + seconds(step.For)
		}
		s.Steps = append(s.Steps, line)
	}
	return s
}
