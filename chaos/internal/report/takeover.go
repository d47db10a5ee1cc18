package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

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
