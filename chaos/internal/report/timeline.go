package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

type timeline struct {
	resource string
	tracks   []*track
	bands    []band // faults of servers that all use
}

type track struct {
	process string
	waiting []span // it has an operation on the resource, and not the lock
	holding []span // it holds the lock, as far as it knows
	fenced  []span // it believes so, and a newer holder has claimed the resource
	both    []span // of a control: it and another one hold the lock
	down    []span // the process has ended
	bands   []band // faults of this process
	crosses []cross

	open  map[string]bool // operations on the resource, while events are read
	since int64           // since when it waits; 0 if it doesn't
	held  span            // the grant that it holds; from is 0 if none
	gone  int64           // when it ended; 0 if it runs
}

type span struct{ from, to, token int64 }

func (s span) times() (from, to float64) { return float64(s.from), float64(s.to) }

func (s span) lasts() string { return seconds(time.Duration(s.to - s.from)) }

type band struct {
	span
	name string
}

func (b band) pauses() bool {
	return strings.HasPrefix(b.name, "pause ") || strings.HasPrefix(b.name, "stop-the-world ")
}

type cross struct{ at, token, current int64 }

func timelineOf(t *trace, resource string) *timeline {
	last := t.events[len(t.events)-1].At
	line := &timeline{resource: resource}
	tracks := map[string]*track{}
	for _, e := range t.events {
		if e.Process != history.Runner && (e.Kind == history.Invoke || e.Kind == history.Starts) {
			tracks[e.Process] = &track{process: e.Process, open: map[string]bool{}}
		}
	}
	var injected []band // and not reverted yet
	for _, e := range t.events {
		switch e.Kind {
		case history.Injected:
			injected = append(injected, band{span{from: e.At}, e.Name})
		case history.Reverted:
			if i := slices.IndexFunc(injected, func(b band) bool { return b.name == e.Name }); i >= 0 {
				injected[i].to = e.At
				line.put(tracks, injected[i])
				injected = slices.Delete(injected, i, i+1)
			}
		default:
			if l := tracks[e.Process]; l != nil {
				l.take(e, resource)
			}
		}
	}
	for _, b := range injected {
		b.to = last
		line.put(tracks, b)
	}
	for _, l := range tracks {
		l.take(history.Event{Kind: history.Ends, At: last}, resource)
		if l.gone != last {
			l.down = append(l.down, span{from: l.gone, to: last})
		}
	}
	line.tracks = slices.SortedFunc(maps.Values(tracks), func(a, b *track) int { // w2 before w10
		return cmp.Or(cmp.Compare(len(a.process), len(b.process)), cmp.Compare(a.process, b.process))
	})
	return line
}

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

// put adds a fault to the track of the process that its name has, else to the whole timeline.
func (t *timeline) put(tracks map[string]*track, b band) {
	for _, word := range strings.Fields(b.name) {
		if l := tracks[strings.Trim(word, ",:;")]; l != nil {
			l.bands = append(l.bands, b)
			return
		}
	}
	t.bands = append(t.bands, b)
}

func (l *track) take(e history.Event, resource string) {
	switch e.Kind {
	case history.Invoke:
		if slices.Contains(e.Resources, resource) {
			l.open[e.Op] = true
			if l.held.from == 0 && l.since == 0 {
				l.since = e.At
			}
		}
	case history.OK, history.Fail, history.Unknown:
		if delete(l.open, e.Op); len(l.open) == 0 {
			l.waited(e.At)
		}
	case history.Starts:
		if l.gone != 0 {
			l.down = append(l.down, span{from: l.gone, to: e.At})
			l.gone = 0
		}
	case history.Ends:
		clear(l.open)
		l.release(e.At)
		l.waited(e.At)
		l.gone = cmp.Or(l.gone, e.At)
	default:
		if e.Resource == resource {
			l.grant(e)
		}
	}
}

func (l *track) grant(e history.Event) {
	switch e.Kind {
	case history.Acquired, history.Claimed:
		l.waited(e.At)
		if l.held.from == 0 || l.held.token != e.Token {
			l.release(e.At)
			l.held = span{from: e.At, token: e.Token}
			l.since = 0
		}
		return
	case history.Rejected:
		if e.Reason == string(storage.ReasonStale) || e.Reason == string(storage.ReasonTokensWentBack) {
			l.crosses = append(l.crosses, cross{e.At, e.Token, e.Current})
		}
	}
	if l.held.token == e.Token && e.Kind != history.Resolved {
		l.release(e.At)
	}
}

func (l *track) waited(at int64) {
	if l.since != 0 {
		l.waiting = append(l.waiting, span{from: l.since, to: at})
	}
	l.since = 0
}

func (l *track) release(at int64) {
	if l.held.from == 0 {
		return
	}
	l.held.to = at
	l.holding = append(l.holding, l.held)
	l.held = span{}
	if len(l.open) > 0 {
		l.since = at
	}
}

// markFenced moves the time after a newer claim from holding to fenced.
func (t *timeline) markFenced(events []history.Event) {
	for _, l := range t.tracks {
		var holding []span
		for _, h := range l.holding {
			from := h.to
			for _, c := range events {
				if c.Kind == history.Claimed && c.Resource == t.resource && c.Token > h.token && c.At < from {
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

func (t *timeline) markBoth() {
	for _, l := range t.tracks {
		for _, other := range t.tracks {
			if l == other {
				continue
			}
			for _, a := range l.holding {
				for _, b := range other.holding {
					if both := (span{from: max(a.from, b.from), to: min(a.to, b.to)}); both.from < both.to {
						l.both = append(l.both, both)
					}
				}
			}
		}
	}
}

func shown[T interface{ times() (from, to float64) }](all []T, x scale) (within []T) {
	for _, one := range all {
		if from, to := one.times(); to >= x.fromValue && from <= x.toValue {
			within = append(within, one)
		}
	}
	return within
}
