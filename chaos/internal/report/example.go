package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

// example is a run that shows what the fence does, and what a control did under the same
// schedule.
type example struct {
	Scenario string
	About    string
	Seed     uint64
	Resource string
	Panels   []panel // Fencekit's, and a control's if there is one

	fenced   *trace
	takeover takeover
}

// panel is one run's side of the example.
type panel struct {
	Title   string
	Figure  template.HTML
	Points  []string // in the order of the figure's numbers
	Outcome string
	Good    bool
}

// maxTried bounds how many runs are read in search of an example.
const maxTried = 12

// exampleOf returns the most instructive run; nil if the files of no run under Fencekit
// with faults were kept.
func exampleOf(suite *result.Suite, load loader) (*example, error) {
	var best *example
	for _, run := range candidates(suite) {
		t, err := load.trace(run)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		found := &example{Scenario: run.Scenario, About: strings.TrimSuffix(about(suite, run.Scenario), "."), Seed: run.Seed, fenced: t, takeover: takeoverOf(*t)}
		if best == nil || found.takeover.better(best.takeover) {
			best = found
		}
		if best.takeover.complete() {
			break
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, best.show(suite, load)
}

// leadScenario is the best example: a holder that is paused between read and write. It is a
// script, so a control's holder is paused for as long.
const leadScenario = "stalled-holder"

// candidates returns runs under Fencekit with faults, the most instructive first: a
// violated one; then leadScenario; then one with a rejection, and with a control that broke
// under the same schedule; and shorter ones before longer ones.
func candidates(suite *result.Suite) []*result.Run {
	var runs []*result.Run
	points := map[*result.Run]int{}
	broken := map[string]int{}
	for i := range suite.Runs {
		if r := &suite.Runs[i]; r.Group != result.Fenced && r.Faults && r.Red() {
			broken[sameSchedule(r)] = max(broken[sameSchedule(r)], 1+min(r.Counts.Oversold, 1))
		}
	}
	for i := range suite.Runs {
		r := &suite.Runs[i]
		if r.Group != result.Fenced || !r.Faults {
			continue
		}
		points[r] = 2 * broken[sameSchedule(r)]
		if r.Verdict == result.Violated {
			points[r] += 100
		}
		if r.Counts.Rejections > 0 {
			points[r] += 5
		}
		if r.Scenario == leadScenario {
			points[r] += 50
		}
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b *result.Run) int {
		return cmp.Or(cmp.Compare(points[b], points[a]), cmp.Compare(a.Counts.Operations, b.Counts.Operations))
	})
	return runs[:min(len(runs), maxTried)]
}

// sameSchedule is equal for runs of one schedule.
func sameSchedule(r *result.Run) string { return fmt.Sprintf("%s/%d/%t", r.Scenario, r.Seed, r.Faults) }

// about is a scenario's summary.
func about(suite *result.Suite, scenario string) string {
	for _, s := range suite.Scenarios {
		if s.Name == scenario {
			return s.Summary
		}
	}
	return ""
}

// show draws the panels.
func (s *example) show(suite *result.Suite, load loader) error {
	control, takeover, err := s.control(suite, load)
	if err != nil {
		return err
	}
	scarce := s.fenced.scarce() || control != nil && control.scarce()
	s.Resource = s.takeover.resource
	s.Panels = []panel{panelOf(s.fenced, s.takeover, "With the fence", scarce)}
	if control != nil {
		takeover.resource = cmp.Or(takeover.resource, s.takeover.resource)
		s.Panels = append(s.Panels, panelOf(control, takeover, "Without: "+title(suite, control.run.Group), scarce))
	}
	return nil
}

// control reads the control that broke most visibly under the example's schedule: with a
// complete takeover, by units sold twice, and not one that breaks without faults.
func (s *example) control(suite *result.Suite, load loader) (*trace, takeover, error) {
	var best *trace
	var bestTakeover takeover
	for _, run := range brokenControls(suite, s.fenced.run) {
		t, err := load.trace(run)
		if err != nil {
			return nil, takeover{}, err
		}
		if t == nil {
			continue
		}
		found := takeoverOf(*t)
		if best == nil || found.complete() && !bestTakeover.complete() {
			best, bestTakeover = t, found
		}
		if bestTakeover.complete() {
			break
		}
	}
	return best, bestTakeover, nil
}

func brokenControls(suite *result.Suite, fenced *result.Run) []*result.Run {
	designed := map[string]bool{}
	for _, g := range suite.Groups {
		designed[g.Name] = g.RedByDesign
	}
	var runs []*result.Run
	for i := range suite.Runs {
		r := &suite.Runs[i]
		if r.Group != result.Fenced && r.Red() && sameSchedule(r) == sameSchedule(fenced) {
			runs = append(runs, r)
		}
	}
	score := func(r *result.Run) int {
		points := min(r.Counts.Oversold, 1) + min(r.Counts.Lost, 1)
		if !designed[r.Group] {
			points += 3
		}
		return points
	}
	slices.SortStableFunc(runs, func(a, b *result.Run) int { return cmp.Compare(score(b), score(a)) })
	return runs
}

// title is the title of a group, or its name.
func title(suite *result.Suite, group string) string {
	for _, g := range suite.Groups {
		if g.Name == group && g.Title != "" {
			return g.Title
		}
	}
	return group
}

// panelOf draws one panel.
func panelOf(t *trace, takeover takeover, title string, scarce bool) panel {
	fenced := t.run.Group == result.Fenced
	line := timelineOf(t.events, takeover.resource)
	if fenced {
		line.markFenced(t.events)
	} else {
		line.markBoth()
	}
	shown := level{}
	for _, l := range t.levels(scarce) {
		if l.resource == takeover.resource {
			shown = l
		}
	}
	points, marks := takeover.points(fenced)
	p := panel{Title: title, Points: points, Outcome: outcome(t.run, shown, scarce), Good: t.run.Verdict == result.Pass}
	p.Figure = drawTimeline(timelineView{
		label:    fmt.Sprintf("%s: %s %s", title, strings.Join(points, " "), p.Outcome),
		timeline: line, level: shown, measure: takeover.resource + ": " + measureOf(scarce), marks: marks,
		x: window(line, takeover, shown),
	})
	return p
}

// wholeRun is the length up to which a run is shown whole.
const wholeRun = 12 * time.Second

// window is the whole run if it is short or has no complete takeover; else the time around
// the takeover, extended to where the level falls below zero.
func window(line *timeline, t takeover, l level) scale {
	from, to := line.from, line.to
	if t.complete() && to-from > int64(wholeRun) {
		from = max(from, min(t.fault.from, t.nextAt)-int64(time.Second))
		until := t.endAt
		for _, c := range l.changes {
			if c.left < 0 {
				until = max(until, c.at)
				break
			}
		}
		to = min(to, until+int64(1500*time.Millisecond))
	}
	return scale{float64(from), float64(max(to, from+1)), timelineLeft, timelineWidth - 8}
}

// outcome is the result of a run, in a sentence.
func outcome(run *result.Run, l level, scarce bool) string {
	switch {
	case run.Verdict == result.Violated && run.Counts.Oversold > 0:
		return fmt.Sprintf("%s sold that were not in stock.", count(run.Counts.Oversold, "unit", "units"))
	case run.Verdict == result.Violated && run.Counts.Lost > 0:
		return fmt.Sprintf("%s lost.", count(run.Counts.Lost, "update was", "updates were"))
	case run.Verdict == result.Violated:
		return "Violated: " + cut(run.Reason)
	case scarce:
		return fmt.Sprintf("Stock never fell below zero: the lowest was %s.", thousands(l.lowest()))
	case l.lowest() >= 0:
		return "Nothing was lost, and nothing was sold twice."
	}
	return "The run is " + string(run.Verdict) + "."
}
