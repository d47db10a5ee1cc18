package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

// timeline is what worker processes did with one resource, and the faults meanwhile.
type timeline struct {
	resource string
	from, to int64 // ns of the run's clock: the load
	tracks   []*track
	bands    []band // faults of servers that all use
}

// track is one worker process.
type track struct {
	process string
	waiting []span // it has an operation on the resource, and not the lock
	holding []span // it holds the lock, as far as it knows
	fenced  []span // it believes so, and a newer holder has claimed the resource
	both    []span // of a control: it and another one hold the lock
	down    []span // the process has ended
	bands   []band // faults of this process
	crosses []cross
}

// span is a time, and the token that it was under.
type span struct{ from, to, token int64 }

// band is a fault, from its injection until it was reverted.
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

// pauses reports whether the fault pauses a process.
func (b band) pauses() bool {
	kind := b.kind()
	return strings.HasPrefix(kind, "pause") || strings.HasPrefix(kind, "stop")
}

// timelineOf makes a timeline of events in the order of their times.
func timelineOf(events []history.Event, resource string) *timeline {
	r := &reader{timeline: &timeline{resource: resource}, tracks: map[string]*trackReader{}}
	if len(events) == 0 {
		return r.timeline
	}
	r.timeline.from, r.timeline.to = bounds(events)
	for _, e := range events {
		if e.Process != history.Runner && (e.Kind == history.Invoke || e.Kind == history.Starts) {
			r.track(e.Process)
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

// reader reads events into a timeline.
type reader struct {
	timeline *timeline
	tracks   map[string]*trackReader
	injected []band // and not reverted yet
}

// trackReader reads the events of one process.
type trackReader struct {
	track *track
	open  map[string]bool // operations on the resource
	since int64           // since when it waits; 0 if it doesn't
	held  span            // the grant that it holds; from is 0 if none
	gone  int64           // when it ended; 0 if it runs
}

func (r *reader) track(process string) *trackReader {
	l := r.tracks[process]
	if l == nil {
		l = &trackReader{track: &track{process: process}, open: map[string]bool{}}
		r.tracks[process] = l
	}
	return l
}

func (r *reader) take(e history.Event) {
	switch e.Kind {
	case history.Injected:
		r.injected = append(r.injected, band{span{from: e.At}, e.Name})
		return
	case history.Reverted:
		r.revert(e)
		return
	}
	l := r.tracks[e.Process]
	if l == nil {
		return
	}
	l.take(e, r.timeline.resource)
}

// revert ends the first fault of that name.
func (r *reader) revert(e history.Event) {
	i := slices.IndexFunc(r.injected, func(b band) bool { return b.name == e.Name })
	if i < 0 {
		return
	}
	b := r.injected[i]
	r.injected = slices.Delete(r.injected, i, i+1)
	b.to = e.At
	r.put(b)
}

// put adds a fault to the track of the process that its name has, else to the whole timeline.
func (r *reader) put(b band) {
	for _, word := range strings.Fields(b.name) {
		if l := r.tracks[strings.Trim(word, ",:;")]; l != nil {
			l.track.bands = append(l.track.bands, b)
			return
		}
	}
	r.timeline.bands = append(r.timeline.bands, b)
}

func (l *trackReader) take(e history.Event, resource string) {
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
		l.track.down = addSpan(l.track.down, span{l.gone, e.At, 0})
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

// grant takes an event of a grant of the resource.
func (l *trackReader) grant(e history.Event) {
	switch e.Kind {
	case history.Acquired, history.Claimed:
		l.waited(e.At)
		if l.held.from == 0 || l.held.token != e.Token {
			l.release(e.At)
			l.held = span{from: e.At, token: e.Token}
		}
	case history.Rejected:
		if e.Reason == string(storage.ReasonStale) || e.Reason == string(storage.ReasonTokensWentBack) {
			l.track.crosses = append(l.track.crosses, cross{e.At, e.Token, e.Current})
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

func (l *trackReader) wait(at int64) {
	if l.held.from == 0 && l.since == 0 {
		l.since = at
	}
}

func (l *trackReader) waited(at int64) {
	if l.since != 0 {
		l.track.waiting = append(l.track.waiting, span{from: l.since, to: at})
	}
	l.since = 0
}

func (l *trackReader) release(at int64) {
	if l.held.from == 0 {
		return
	}
	l.track.holding = append(l.track.holding, span{l.held.from, at, l.held.token})
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

// finish ends what is still open at the end of the history, and sorts the tracks.
func (r *reader) finish(at int64) {
	for _, b := range r.injected {
		b.to = at
		r.put(b)
	}
	for _, l := range r.tracks {
		l.release(at)
		l.waited(at)
		l.track.down = addSpan(l.track.down, span{l.gone, at, 0})
		r.timeline.tracks = append(r.timeline.tracks, l.track)
	}
	slices.SortFunc(r.timeline.tracks, func(a, b *track) int { // w2 before w10
		return cmp.Or(cmp.Compare(len(a.process), len(b.process)), cmp.Compare(a.process, b.process))
	})
}

// markFenced moves the time after a newer holder had claimed the resource from holding to
// fenced.
func (t *timeline) markFenced(events []history.Event) {
	var claims []history.Event
	for _, e := range events {
		if e.Kind == history.Claimed && e.Resource == t.resource {
			claims = append(claims, e)
		}
	}
	for _, l := range t.tracks {
		var holding []span
		for _, h := range l.holding {
			from := h.to
			for _, c := range claims {
				if c.Token > h.token && c.At < from {
					from = max(c.At, h.from)
				}
			}
			if from > h.from {
				holding = append(holding, span{h.from, from, h.token})
			}
			if from < h.to {
				l.fenced = append(l.fenced, span{from, h.to, h.token})
			}
		}
		l.holding = holding
	}
}

// markBoth notes where two processes hold the lock of a control.
func (t *timeline) markBoth() {
	type held struct {
		span
		track *track
	}
	var all []held
	for _, l := range t.tracks {
		for _, h := range l.holding {
			all = append(all, held{h, l})
		}
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Compare(a.from, b.from) })
	for i, a := range all {
		for _, b := range all[i+1:] {
			if b.from >= a.to {
				break
			}
			if a.track != b.track {
				both := span{from: b.from, to: min(a.to, b.to)}
				a.track.both = append(a.track.both, both)
				b.track.both = append(b.track.both, both)
			}
		}
	}
}

// merged joins spans that are too small and too close together to be seen apart, where tiny
// is a pixel: at most one span for each pixel is left. A joined span of several tokens has
// none.
func merged(spans []span, tiny float64) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []span
	for _, s := range spans {
		if n := len(out); n > 0 {
			last := &out[n-1]
			small := float64(s.to-s.from) < 3*tiny || float64(last.to-last.from) < 3*tiny || s.from <= last.to
			if float64(s.from-last.to) < tiny && small {
				last.to = max(last.to, s.to)
				if last.token != s.token {
					last.token = 0
				}
				continue
			}
		}
		out = append(out, s)
	}
	return out
}
