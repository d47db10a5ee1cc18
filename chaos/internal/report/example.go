package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// example is a run, and what a control did under the same schedule.
type example struct {
	Scenario string
	About    string
	Seed     uint64
	Resource string
	Panels   []panel       // Fencekit's, and a control's if there is one
	Tokens   template.HTML // of Fencekit's
}

type panel struct {
	Title   string
	Figure  template.HTML
	Points  []string // in the order of the figure's numbers
	Outcome string
	Good    bool
}

// leadScenario is a script, so a control's holder is paused for as long.
const leadScenario = "stalled-holder"

// exampleOf is nil if the files of no run under Fencekit with faults were kept.
func exampleOf(suite *check.Suite, load loader) (*example, error) {
	fenced, shown, err := instructive(load, runsBy(suite, func(r *check.Run) int {
		switch {
		case r.Group != check.Fenced || !r.Faults:
			return 0
		case r.Verdict == check.Violated:
			return 4
		case r.Scenario == leadScenario:
			return 3
		}
		return 1 + min(r.Counts.Rejections, 1)
	}))
	if err != nil || fenced == nil {
		return nil, err
	}
	designed := map[string]bool{}
	for _, g := range suite.Groups {
		designed[g.Name] = g.RedByDesign
	}
	control, done, err := instructive(load, runsBy(suite, func(r *check.Run) int {
		switch {
		case !r.Red() || sameSchedule(r) != sameSchedule(fenced.run):
			return 0
		case designed[r.Group]:
			return 1
		}
		return 2 + min(r.Counts.Oversold, 1) + min(r.Counts.Lost, 1)
	}))
	if err != nil {
		return nil, err
	}
	e := &example{
		Scenario: fenced.run.Scenario, About: strings.TrimSuffix(about(suite, fenced.run.Scenario), "."), Seed: fenced.run.Seed,
		Resource: shown.resource, Panels: []panel{panelOf(fenced, shown, "With the fence")}, Tokens: drawTokens(fenced, shown.resource),
	}
	if control != nil {
		e.Panels = append(e.Panels, panelOf(control, done, "Without: "+title(suite, control.run.Group)))
	}
	return e, nil
}

// runsBy returns the runs that have a worth, those with the greatest first, and then the shortest.
func runsBy(suite *check.Suite, worth func(*check.Run) int) (runs []*check.Run) {
	for i := range suite.Runs {
		if r := &suite.Runs[i]; worth(r) > 0 {
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b *check.Run) int {
		return cmp.Or(cmp.Compare(worth(b), worth(a)), cmp.Compare(a.Counts.Operations, b.Counts.Operations))
	})
	return runs
}

const maxTried = 12

func instructive(load loader, runs []*check.Run) (best *trace, shown takeover, err error) {
	for _, run := range runs[:min(len(runs), maxTried)] {
		t, err := load.trace(run)
		if err != nil {
			return nil, shown, err
		}
		if t == nil {
			continue
		}
		found, ok := takeoverOf(t)
		if best == nil || ok {
			best, shown = t, found
		}
		if ok {
			break
		}
	}
	return best, shown, nil
}

func sameSchedule(r *check.Run) string { return fmt.Sprintf("%s/%d/%t", r.Scenario, r.Seed, r.Faults) }

func about(suite *check.Suite, scenario string) string {
	for _, s := range suite.Scenarios {
		if s.Name == scenario {
			return s.Summary
		}
	}
	return ""
}

func title(suite *check.Suite, group string) string {
	for _, g := range suite.Groups {
		if g.Name == group && g.Title != "" {
			return g.Title
		}
	}
	return group
}

// wholeRun is the length up to which a run is shown whole, and not only the time around the takeover.
const wholeRun = 12 * time.Second

func panelOf(t *trace, shown takeover, title string) panel {
	line := timelineOf(t, shown.resource)
	if t.run.Group == check.Fenced {
		line.markFenced(t.events)
	} else {
		line.markBoth()
	}
	p := panel{Title: title, Outcome: summary(t.run), Good: t.run.Verdict == check.Pass}
	var marks []mark
	from, to := bounds(t.events)
	if shown.holder != "" {
		p.Points, marks = shown.points(t.run.Group == check.Fenced)
		if to-from > int64(wholeRun) {
			from, to = max(from, shown.fault.from-int64(time.Second)), min(to, shown.endAt+int64(1500*time.Millisecond))
		}
	}
	l := level{resource: shown.resource}
	for _, other := range levelsOf(t) {
		if other.resource == l.resource {
			l = other
		}
	}
	p.Figure = drawTimeline(line, l, marks, timeScale(from, to, timelineLeft, timelineWidth-8),
		fmt.Sprintf("%s: %s %s", title, strings.Join(p.Points, " "), p.Outcome))
	return p
}

// takeover is a holder with a fault, another worker that takes over meanwhile, and what the holder did later.
// Without one only resource is set.
type takeover struct {
	resource  string
	holder    string
	token     int64
	held      int64 // when it got the lock
	fault     band
	next      string
	nextToken int64
	nextAt    int64 // when the next one got the lock
	endAt     int64 // when the holder's late work was rejected, or was written
	current   int64 // the fence's token then
}

// takeoverOf prefers a paused process.
func takeoverOf(t *trace) (best takeover, ok bool) {
	var resources []string
	for _, e := range t.events {
		resources = append(resources, e.Resources...)
	}
	slices.Sort(resources)
	for _, resource := range slices.Compact(resources) {
		best.resource = cmp.Or(best.resource, resource)
		line := timelineOf(t, resource)
		for _, l := range line.tracks {
			for _, b := range l.bands {
				found, complete := line.takeover(t, l, b)
				if complete && (best.holder == "" || found.fault.pauses() && !best.fault.pauses()) {
					best = found
				}
			}
		}
	}
	return best, best.holder != ""
}

func (line *timeline) takeover(t *trace, l *track, fault band) (out takeover, complete bool) {
	out = takeover{resource: line.resource, holder: l.process, fault: fault}
	for _, h := range l.holding {
		if h.from <= fault.from && h.to >= fault.from {
			out.held, out.token = h.from, h.token
		}
	}
	takes := history.Acquired
	if t.run.Group == check.Fenced {
		takes = history.Claimed
	}
	for _, e := range t.events {
		if e.Kind == takes && e.Resource == line.resource && e.Process != l.process && e.At > fault.from && e.At < fault.to && out.nextAt == 0 {
			out.next, out.nextAt, out.nextToken = e.Process, e.At, e.Token
		}
	}
	if out.held == 0 || out.nextAt == 0 {
		return out, false
	}
	if t.run.Group != check.Fenced {
		out.endAt = lateWrite(t, l.process, line.resource, out.nextAt)
		return out, out.endAt != 0
	}
	for _, c := range l.crosses {
		if c.token == out.token && c.at > fault.from && out.endAt == 0 {
			out.endAt, out.current = c.at, c.current
		}
	}
	return out, out.endAt != 0
}

// lateWrite is when an operation took effect that had begun before another process got the lock; 0 if none did.
func lateWrite(t *trace, process, resource string, overtaken int64) int64 {
	open := map[string]bool{}
	for _, e := range t.events {
		switch {
		case e.Process != process:
		case e.Kind == history.Invoke && e.At < overtaken:
			for _, effect := range t.observed.Effects {
				open[e.Op] = open[e.Op] || effect.Op == e.Op && effect.Resource == resource
			}
		case e.Kind == history.OK && open[e.Op] && e.At > overtaken:
			return e.At
		}
	}
	return 0
}

type mark struct {
	n       int
	process string
	at      int64
}

func (t takeover) points(fenced bool) (points []string, marks []mark) {
	say := func(process string, at int64, format string, args ...any) {
		points = append(points, fmt.Sprintf(format, args...))
		marks = append(marks, mark{len(points), process, at})
	}
	say(t.holder, t.held, "%s holds %s%s.", t.holder, t.resource, withToken(t.token))
	if t.fault.pauses() {
		say(t.holder, t.fault.from, "%s is paused for %s.", t.holder, t.fault.lasts())
	} else {
		say(t.holder, t.fault.from, "%s: %s, for %s.", t.holder, t.fault.name, t.fault.lasts())
	}
	if fenced {
		say(t.next, t.nextAt, "%s takes over and claims%s.", t.next, withToken(t.nextToken))
		say(t.holder, t.endAt, "%s goes on and tries to write. It is rejected (✕): its token %d is older than %d, which has claimed.", t.holder, t.token, t.current)
	} else {
		say(t.next, t.nextAt, "%s gets the lock%s.", t.next, withToken(t.nextToken))
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
