package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

// timeline is what worker processes did with one resource, and what was done to
// them.
type timeline struct {
	resource string
	from, to int64 // ns of the run's clock: the load
	lanes    []*lane
	bands    []band // faults of what they all use
}

// lane is one worker process.
type lane struct {
	process string
	waiting []span // an operation on the resource is under way, and the lock is somebody else's
	holding []span // it holds the lock, as far as it knows
	fenced  []span // it believes so, and somebody newer has claimed the resource
	both    []span // of a control: it and another one hold the lock
	down    []span // the process isn't there
	bands   []band // faults of this process
	crosses []cross
}

// span is a time, and the token that it was under.
type span struct{ from, to, token int64 }

// band is a fault, from its strike until it was reverted.
type band struct {
	span
	name string
}

// cross is a rejection as stale.
type cross struct{ at, token, current int64 }

// kind is the first word of a fault's name.
func (b band) kind() string {
	kind, _, _ := strings.Cut(b.name, " ")
	return kind
}

// stands reports whether the fault makes a process stand still.
func (b band) stands() bool {
	kind := b.kind()
	return strings.HasPrefix(kind, "pause") || strings.HasPrefix(kind, "stop")
}

// timelineOf reads a history, whose events are in the order of their times.
func timelineOf(events []history.Event, resource string) *timeline {
	r := &reader{timeline: &timeline{resource: resource}, lanes: map[string]*laneReader{}}
	if len(events) == 0 {
		return r.timeline
	}
	r.timeline.from, r.timeline.to = bounds(events)
	for _, e := range events {
		if e.Process != history.Runner && (e.Kind == history.Invoke || e.Kind == history.Starts) {
			r.lane(e.Process)
		}
	}
	for _, e := range events {
		r.take(e)
	}
	r.finish(events[len(events)-1].At)
	return r.timeline
}

// bounds are the beginning of the load and the end of the run.
func bounds(events []history.Event) (from, to int64) {
	from, to = events[0].At, events[len(events)-1].At
	for _, e := range events {
		switch {
		case e.Kind == history.Phase && e.Name == history.PhaseLoad:
			from = e.At
		case e.Kind == history.Phase && e.Name == history.PhaseEnd:
			to = e.At
		}
	}
	return from, to
}

// reader makes a timeline of events.
type reader struct {
	timeline *timeline
	lanes    map[string]*laneReader
	struck   []band // and not reverted yet
}

// laneReader is what is known of a process so far.
type laneReader struct {
	lane  *lane
	open  map[string]bool // operations on the resource
	since int64           // waits since then; 0 if it doesn't
	held  span            // the grant that it holds; from is 0 if none
	gone  int64           // ended then; 0 if it runs
}

func (r *reader) lane(process string) *laneReader {
	l := r.lanes[process]
	if l == nil {
		l = &laneReader{lane: &lane{process: process}, open: map[string]bool{}}
		r.lanes[process] = l
	}
	return l
}

func (r *reader) take(e history.Event) {
	switch e.Kind {
	case history.Injected:
		r.struck = append(r.struck, band{span{from: e.At}, e.Name})
		return
	case history.Reverted:
		r.revert(e)
		return
	}
	l := r.lanes[e.Process]
	if l == nil {
		return
	}
	l.take(e, r.timeline.resource)
}

// revert ends the first fault of that name.
func (r *reader) revert(e history.Event) {
	i := slices.IndexFunc(r.struck, func(b band) bool { return b.name == e.Name })
	if i < 0 {
		return
	}
	b := r.struck[i]
	r.struck = slices.Delete(r.struck, i, i+1)
	b.to = e.At
	r.put(b)
}

// put adds a fault to the lane of the process that its name names, else to all.
func (r *reader) put(b band) {
	for _, word := range strings.Fields(b.name) {
		if l := r.lanes[strings.Trim(word, ",:;")]; l != nil {
			l.lane.bands = append(l.lane.bands, b)
			return
		}
	}
	r.timeline.bands = append(r.timeline.bands, b)
}

func (l *laneReader) take(e history.Event, resource string) {
	switch e.Kind {
	case history.Invoke:
		if slices.Contains(e.Resources, resource) {
			l.open[e.Op] = true
			l.wait(e.At)
		}
	case history.OK, history.Fail, history.Unknown:
		if delete(l.open, e.Op); len(l.open) == 0 {
			l.waited(e.At)
		}
	case history.Starts:
		l.lane.down = addSpan(l.lane.down, span{l.gone, e.At, 0})
		l.gone = 0
	case history.Ends:
		l.release(e.At)
		l.waited(e.At)
		clear(l.open)
		l.gone = e.At
	default:
		if e.Resource == resource {
			l.grant(e)
		}
	}
}

// grant takes what happened to a grant of the resource.
func (l *laneReader) grant(e history.Event) {
	switch e.Kind {
	case history.Acquired, history.Claimed:
		l.waited(e.At)
		if l.held.from == 0 || l.held.token != e.Token {
			l.release(e.At)
			l.held = span{from: e.At, token: e.Token}
		}
	case history.Rejected:
		if e.Reason == string(storage.ReasonStale) || e.Reason == string(storage.ReasonTokensWentBack) {
			l.lane.crosses = append(l.lane.crosses, cross{e.At, e.Token, e.Current})
		}
		if l.held.token == e.Token {
			l.release(e.At)
		}
	case history.Released, history.Lost:
		if l.held.token == e.Token {
			l.release(e.At)
		}
	}
}

func (l *laneReader) wait(at int64) {
	if l.held.from == 0 && l.since == 0 {
		l.since = at
	}
}

func (l *laneReader) waited(at int64) {
	if l.since != 0 {
		l.lane.waiting = append(l.lane.waiting, span{from: l.since, to: at})
	}
	l.since = 0
}

func (l *laneReader) release(at int64) {
	if l.held.from == 0 {
		return
	}
	l.lane.holding = append(l.lane.holding, span{l.held.from, at, l.held.token})
	l.held = span{}
	if len(l.open) > 0 {
		l.since = at
	}
}

func addSpan(spans []span, s span) []span {
	if s.from == 0 {
		return spans
	}
	return append(spans, s)
}

// finish ends what has not ended when the history does, and sorts the lanes.
func (r *reader) finish(at int64) {
	for _, b := range r.struck {
		b.to = at
		r.put(b)
	}
	for _, l := range r.lanes {
		l.release(at)
		l.waited(at)
		l.lane.down = addSpan(l.lane.down, span{l.gone, at, 0})
		r.timeline.lanes = append(r.timeline.lanes, l.lane)
	}
	slices.SortFunc(r.timeline.lanes, func(a, b *lane) int { // w2 before w10
		return cmp.Or(cmp.Compare(len(a.process), len(b.process)), cmp.Compare(a.process, b.process))
	})
}
