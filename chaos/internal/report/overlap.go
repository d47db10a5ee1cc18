package report

import (
	"cmp"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

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
