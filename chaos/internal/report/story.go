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

// story is one run told so that it is understood at a glance, and what a control
// did under the same schedule.
type story struct {
	Scenario string
	About    string
	Seed     uint64
	Resource string
	Panels   []panel // the framework's, and a control's if there is one

	fenced *told
	turn   turn
}

// panel is one run's side of the story.
type panel struct {
	Title   string
	Figure  template.HTML
	Points  []string // in the order of the figure's numbers
	Outcome string
	Good    bool
}

// maxTried bounds how many runs are read in search of a story.
const maxTried = 12

// storyOf tells the most telling run; nil if no run under the framework and
// faults was kept.
func storyOf(suite *result.Suite, load loader) (*story, error) {
	var best *story
	for _, run := range tellable(suite) {
		t, err := load.tell(run)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		found := &story{Scenario: run.Scenario, About: strings.TrimSuffix(about(suite, run.Scenario), "."), Seed: run.Seed, fenced: t, turn: turnOf(*t)}
		if best == nil || found.turn.better(best.turn) {
			best = found
		}
		if best.turn.complete() {
			break
		}
	}
	if best == nil {
		return nil, nil
	}
	return best, best.show(suite, load)
}

// leadScenario is the failure that users are told of first: a holder that stands
// still between read and write. A script, it stands still for as long in a control.
const leadScenario = "stalled-holder"

// tellable returns runs under the framework and faults that are worth a look, the
// most promising first: a violated one before all; else leadScenario; else one with a
// rejection, and with a control that broke under the same schedule; and the shorter the
// better.
func tellable(suite *result.Suite) []*result.Run {
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

// about is what a scenario is about, by the suite.
func about(suite *result.Suite, scenario string) string {
	for _, s := range suite.Scenarios {
		if s.Name == scenario {
			return s.Summary
		}
	}
	return ""
}

// show draws the panels.
func (s *story) show(suite *result.Suite, load loader) error {
	control, turn, err := s.control(suite, load)
	if err != nil {
		return err
	}
	scarce := s.fenced.scarce() || control != nil && control.scarce()
	s.Resource = s.turn.resource
	s.Panels = []panel{panelOf(s.fenced, s.turn, "With the fence", scarce)}
	if control != nil {
		turn.resource = cmp.Or(turn.resource, s.turn.resource)
		s.Panels = append(s.Panels, panelOf(control, turn, "Without: "+title(suite, control.run.Group), scarce))
	}
	return nil
}

// control reads the control that broke most plainly under the story's schedule:
// with a complete turn, not one that breaks in any case, and by what was sold twice.
func (s *story) control(suite *result.Suite, load loader) (*told, turn, error) {
	var best *told
	var bestTurn turn
	for _, run := range brokenControls(suite, s.fenced.run) {
		t, err := load.tell(run)
		if err != nil {
			return nil, turn{}, err
		}
		if t == nil {
			continue
		}
		found := turnOf(*t)
		if best == nil || found.complete() && !bestTurn.complete() {
			best, bestTurn = t, found
		}
		if bestTurn.complete() {
			break
		}
	}
	return best, bestTurn, nil
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

// title is the name of a group for people.
func title(suite *result.Suite, group string) string {
	for _, g := range suite.Groups {
		if g.Name == group && g.Title != "" {
			return g.Title
		}
	}
	return group
}

// panelOf draws one side.
func panelOf(t *told, turn turn, title string, scarce bool) panel {
	fenced := t.run.Group == result.Fenced
	line := timelineOf(t.events, turn.resource)
	if fenced {
		line.markFenced(t.events)
	} else {
		line.markBoth()
	}
	shown := level{}
	for _, l := range t.levels(scarce) {
		if l.resource == turn.resource {
			shown = l
		}
	}
	points, marks := turn.points(fenced)
	p := panel{Title: title, Points: points, Outcome: outcome(t.run, shown, scarce), Good: t.run.Verdict == result.Pass}
	p.Figure = drawScene(scene{
		label:    fmt.Sprintf("%s: %s %s", title, strings.Join(points, " "), p.Outcome),
		timeline: line, level: shown, measure: turn.resource + ": " + measureOf(scarce), marks: marks,
		x: window(line, turn, shown),
	})
	return p
}

// wholeRun is how long a run may be to be shown whole.
const wholeRun = 12 * time.Second

// window is the whole run if it is short or has no complete turn; else the time
// around the turn, and until the level is below zero if it ever is.
func window(line *timeline, t turn, l level) scale {
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
	return scale{float64(from), float64(max(to, from+1)), sceneLeft, sceneWidth - 8}
}

// outcome is how one side ended, in a sentence.
func outcome(run *result.Run, l level, scarce bool) string {
	switch {
	case run.Verdict == result.Violated && run.Counts.Oversold > 0:
		return fmt.Sprintf("%s sold that were not there.", count(run.Counts.Oversold, "unit", "units"))
	case run.Verdict == result.Violated && run.Counts.Lost > 0:
		return fmt.Sprintf("%s lost.", count(run.Counts.Lost, "update was", "updates were"))
	case run.Verdict == result.Violated:
		return "Violated: " + cut(run.Reason)
	case scarce:
		return fmt.Sprintf("Stock never fell below zero: the least was %s.", thousands(l.lowest()))
	case l.lowest() >= 0:
		return "Nothing was lost, and nothing was sold twice."
	}
	return "The run is " + string(run.Verdict) + "."
}
