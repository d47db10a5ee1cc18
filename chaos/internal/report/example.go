package report

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
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

// takeover is what an example shows: a holder with a fault, and another worker that takes
// over meanwhile. A time is 0 if that didn't happen.
type takeover struct {
	resource string
	holder   string
	token    int64
	fault    band
	held     int64 // when it got the lock
	next     string
	nextAt   int64 // when the next one got the lock
	nextTok  int64
	endAt    int64 // when the holder's late work was rejected, or was written
	current  int64 // the fence's token then
}

// complete reports whether all of it happened.
func (t takeover) complete() bool { return t.held != 0 && t.nextAt != 0 && t.endAt != 0 }

// takeoverOf finds the most instructive takeover of a run: the first complete one from a
// paused process. Without a complete one it is the one with the most parts, or only the
// first resource.
func takeoverOf(t trace) takeover {
	var best takeover
	for _, resource := range resources(t.events) {
		if best.resource == "" {
			best.resource = resource
		}
		line := timelineOf(t.events, resource)
		for _, l := range line.tracks {
			for _, b := range l.bands {
				if found := line.takeover(t, l, b); best.holder == "" || found.better(best) {
					best = found
				}
			}
		}
	}
	return best
}

func (t takeover) better(u takeover) bool {
	return cmp.Or(cmp.Compare(t.worth(), u.worth()), cmp.Compare(u.fault.from, t.fault.from)) > 0
}

// worth counts the parts of a takeover.
func (t takeover) worth() int {
	worth := 0
	for _, at := range []int64{t.held, t.nextAt, t.endAt} {
		if at != 0 {
			worth += 2
		}
	}
	if t.fault.pauses() {
		worth++
	}
	return worth
}

// resources are the resources of all operations, sorted.
func resources(events []history.Event) []string {
	seen := map[string]bool{}
	var all []string
	for _, e := range events {
		if e.Kind != history.Invoke {
			continue
		}
		for _, r := range e.Resources {
			if !seen[r] {
				seen[r] = true
				all = append(all, r)
			}
		}
	}
	slices.Sort(all)
	return all
}

// takeover reads what happened to a track's grant after a fault was injected. The events of
// a paused process come after it goes on.
func (line *timeline) takeover(t trace, l *track, fault band) takeover {
	out := takeover{resource: line.resource, holder: l.process, fault: fault}
	for _, h := range l.holding {
		if h.from <= fault.from && h.to >= fault.from {
			out.held, out.token = h.from, h.token
		}
	}
	if out.held == 0 {
		return out
	}
	kind := history.Acquired
	if t.run.Group == result.Fenced {
		kind = history.Claimed
	}
	for _, e := range t.events {
		if e.Kind == kind && e.Resource == line.resource && e.Process != l.process && e.At > fault.from && e.At < fault.to && out.nextAt == 0 {
			out.next, out.nextAt, out.nextTok = e.Process, e.At, e.Token
		}
	}
	if out.nextAt == 0 {
		return out
	}
	if t.run.Group == result.Fenced {
		for _, c := range l.crosses {
			if c.token == out.token && c.at > fault.from && out.endAt == 0 {
				out.endAt, out.current = c.at, c.current
			}
		}
		return out
	}
	out.endAt = lateWrite(t, l.process, line.resource, out.nextAt)
	return out
}

// lateWrite is when an operation took effect that had begun before another process got the
// lock; 0 if none did after that.
func lateWrite(t trace, process, resource string, overtaken int64) int64 {
	open := map[string]bool{}
	left := map[string]bool{}
	for _, e := range t.observed.Effects {
		left[e.Op] = left[e.Op] || e.Resource == resource
	}
	for _, e := range t.events {
		switch {
		case e.Process != process:
		case e.Kind == history.Invoke && e.At < overtaken && left[e.Op]:
			open[e.Op] = true
		case e.Kind == history.OK && open[e.Op] && e.At > overtaken:
			return e.At
		case e.Kind == history.OK:
			delete(open, e.Op)
		}
	}
	return 0
}

// points are the sentences of a takeover, and the marks of their numbers.
func (t takeover) points(fenced bool) (points []string, marks []mark) {
	say := func(process string, at int64, format string, args ...any) {
		points = append(points, fmt.Sprintf(format, args...))
		marks = append(marks, mark{len(points), process, at})
	}
	if t.held != 0 {
		say(t.holder, t.held, "%s holds %s%s.", t.holder, t.resource, withToken(t.token))
	}
	switch {
	case t.holder == "":
	case t.fault.pauses():
		say(t.holder, t.fault.from, "%s is paused for %s.", t.holder, lasts(t.fault.span))
	default:
		say(t.holder, t.fault.from, "%s: %s, for %s.", t.holder, t.fault.name, lasts(t.fault.span))
	}
	if t.nextAt != 0 {
		verb := "gets the lock"
		if fenced {
			verb = "takes over and claims"
		}
		say(t.next, t.nextAt, "%s %s%s.", t.next, verb, withToken(t.nextTok))
	}
	switch {
	case t.endAt == 0:
	case fenced:
		say(t.holder, t.endAt, "%s goes on and tries to write. It is rejected (✕): its token %d is older than %d, which has claimed.", t.holder, t.token, t.current)
	default:
		say(t.holder, t.endAt, "%s goes on and writes: nothing stops it.", t.holder)
	}
	return points, marks
}

func withToken(token int64) string {
	if token == 0 {
		return ""
	}
	return fmt.Sprintf(" with token %d", token)
}

// loader reads the files of a run.
type loader func(run *result.Run) ([]history.Event, *observe.Observation, error)

// trace is a run with its history and what was observed.
type trace struct {
	run      *result.Run
	events   []history.Event
	observed *observe.Observation
}

// trace reads a run; it returns nil if the files of the run were not kept.
func (load loader) trace(run *result.Run) (*trace, error) {
	events, observed, err := load(run)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", run, err)
	}
	return &trace{run, events, observed}, nil
}

// scarce reports whether so much was sold that the figures show the remaining stock.
// Otherwise they show the balance.
func (t *trace) scarce() bool {
	for _, l := range remaining(t.events, t.observed) {
		if l.lowest() <= l.initial/4 {
			return true
		}
	}
	return false
}

// levels are the levels that a figure shows.
func (t *trace) levels(scarce bool) []level {
	if scarce {
		return remaining(t.events, t.observed)
	}
	return balance(t.events, t.observed)
}

// measureOf says what a figure of levels shows.
func measureOf(scarce bool) string {
	if scarce {
		return "remaining stock"
	}
	return "remaining stock minus the stock column: 0 if no update was lost"
}
