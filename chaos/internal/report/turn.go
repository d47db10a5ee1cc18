package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// turn is what a story is about: a holder that a fault struck, whom another one
// overtook meanwhile. A time is 0 if that didn't happen.
type turn struct {
	resource string
	holder   string
	token    int64
	fault    band
	held     int64 // when it got the lock
	next     string
	nextAt   int64 // when the next one got the lock
	nextTok  int64
	endAt    int64 // when the holder's late work was rejected, or was written
	current  int64 // token that it was rejected for
}

// complete reports whether everything of a story happened.
func (t turn) complete() bool { return t.held != 0 && t.nextAt != 0 && t.endAt != 0 }

// turnOf finds the most telling turn of a run: a complete one of a process that
// stood still, the sooner the better. Without a complete one it is the one with the
// most parts, or nothing but the first resource.
func turnOf(t told) turn {
	var best turn
	for _, resource := range resources(t.events) {
		if best.resource == "" {
			best.resource = resource
		}
		line := timelineOf(t.events, resource)
		for _, l := range line.lanes {
			for _, b := range l.bands {
				if found := line.turn(t, l, b); best.holder == "" || found.better(best) {
					best = found
				}
			}
		}
	}
	return best
}

func (t turn) better(u turn) bool {
	return cmp.Or(cmp.Compare(t.worth(), u.worth()), cmp.Compare(u.fault.from, t.fault.from)) > 0
}

// worth counts what a turn has of a story.
func (t turn) worth() int {
	worth := 0
	for _, at := range []int64{t.held, t.nextAt, t.endAt} {
		if at != 0 {
			worth += 2
		}
	}
	if t.fault.stands() {
		worth++
	}
	return worth
}

// resources are those that operations were about, sorted.
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

// turn reads what became of a lane's grant after a fault struck. What a process
// tells after it was stopped it tells after it goes on.
func (line *timeline) turn(t told, l *lane, fault band) turn {
	out := turn{resource: line.resource, holder: l.process, fault: fault}
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

// lateWrite is when an operation of a process that had begun before somebody else
// got the lock was done all the same after that; 0 if none was.
func lateWrite(t told, process, resource string, overtaken int64) int64 {
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

// points are the sentences of a turn, and where their numbers stand.
func (t turn) points(fenced bool) (points []string, marks []mark) {
	say := func(process string, at int64, format string, args ...any) {
		points = append(points, fmt.Sprintf(format, args...))
		marks = append(marks, mark{len(points), process, at})
	}
	if t.held != 0 {
		say(t.holder, t.held, "%s holds %s%s.", t.holder, t.resource, withToken(t.token))
	}
	switch {
	case t.holder == "":
	case t.fault.stands():
		say(t.holder, t.fault.from, "%s stands still for %s.", t.holder, lasts(t.fault.span))
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
		say(t.holder, t.endAt, "%s goes on and wants to write. Rejected (✕): its token %d is older than %d, which has claimed.", t.holder, t.token, t.current)
	default:
		say(t.holder, t.endAt, "%s goes on and writes all the same: nothing stops it.", t.holder)
	}
	return points, marks
}

func withToken(token int64) string {
	if token == 0 {
		return ""
	}
	return fmt.Sprintf(" with token %d", token)
}
