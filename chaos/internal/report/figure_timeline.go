package report

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"time"
)

// timelineView is what a timeline figure shows: one run, and one resource of it.
type timelineView struct {
	label    string // for screen readers
	timeline *timeline
	level    level  // under the tracks
	measure  string // of the level
	marks    []mark // in the tracks
	x        scale  // the times that are shown
}

// mark is a number in a figure that a sentence refers to.
type mark struct {
	n       int
	process string
	at      int64
}

// Sizes of the tracks figure, in pixels.
const (
	timelineWidth = 620
	timelineLeft  = 36
	timelineTop   = 26
	trackHeight   = 34
	levelHeight   = 110
	maxTracks     = 8
)

// drawTimeline draws a track for each worker, faults as bands, a cross for each
// rejection, and the level of the resource under it.
func drawTimeline(s timelineView) template.HTML {
	tracks := s.tracks()
	bottom := timelineTop + float64(len(tracks)*trackHeight)
	d := newDrawing(timelineWidth, bottom+levelHeight+52, s.label)
	d.sharedFaults(s, bottom)
	for i, l := range tracks {
		d.track(s.x, l, timelineTop+float64(i*trackHeight))
	}
	for i, l := range tracks {
		d.marks(s, l.process, timelineTop+float64(i*trackHeight)+4)
	}
	d.level(s, bottom+24, bottom+24+levelHeight)
	d.timeAxis(s.x, bottom+24+levelHeight)
	return d.done()
}

// tracks are the tracks that are drawn: those with marks, and others while there is room.
func (s timelineView) tracks() []*track {
	marked := map[string]bool{}
	for _, m := range s.marks {
		marked[m.process] = true
	}
	room := maxTracks - len(marked)
	var tracks []*track
	for _, l := range s.timeline.tracks {
		if !marked[l.process] {
			room--
		}
		if marked[l.process] || room >= 0 {
			tracks = append(tracks, l)
		}
	}
	return tracks
}

// marks draws the numbers of a track: the last one at its time, and each one before it far
// enough to the left that both can be read.
func (d *drawing) marks(s timelineView, process string, y float64) {
	free := s.x.toPixel
	for _, m := range slices.Backward(s.marks) {
		if m.process == process {
			at := min(s.x.within(float64(m.at)), free)
			d.mark(at, y, m.n)
			free = at - 16
		}
	}
}

// sharedFaults draws the faults of servers that all workers use, across the tracks.
func (d *drawing) sharedFaults(s timelineView, bottom float64) {
	free := 0.0 // from here on there is room for the next name
	for _, b := range thinned(s.timeline.bands, s.x) {
		from, width := s.x.box(b.span)
		d.rect("shared", from, timelineTop-4, width, bottom-timelineTop+4, b.title())
		if from >= free {
			d.text("small", from, timelineTop-9, start, b.name)
			free = from + textWidth(b.name) + 8
		}
	}
}

// track draws what one worker did, within a height that begins at y.
func (d *drawing) track(x scale, l *track, y float64) {
	const top, height = 9, 18
	center := y + top + height/2
	d.text("name", timelineLeft-6, center+4, end, short(l.process, 5))
	d.line("track", x.fromPixel, center, x.toPixel, center)
	tiny := x.perPixel()
	d.spans("waiting", "waits", x, merged(l.waiting, tiny), center-2, 4)
	d.spans("holding", "holds", x, merged(l.holding, tiny), y+top, height)
	d.spans("fenced", "believes it holds, but a newer holder has claimed", x, merged(l.fenced, tiny), y+top, height)
	d.spans("both", "two workers hold the lock", x, merged(l.both, tiny), y+top, height)
	d.spans("down", "the process has ended", x, merged(l.down, tiny), y+top, height)
	for _, b := range thinned(l.bands, x) {
		d.ownFault(x, b, y)
	}
	tokens := append(merged(l.holding, tiny), merged(l.fenced, tiny)...)
	for _, s := range tokens {
		d.token(x, s, center)
	}
	last := -10.0
	for _, c := range l.crosses {
		if at := x.at(float64(c.at)); float64(c.at) >= x.fromValue && float64(c.at) <= x.toValue && at-last >= 3 {
			d.cross("rejected", at, center, 7, fmt.Sprintf("rejected: token %d, since %d has claimed", c.token, c.current))
			last = at
		}
	}
}

// ownFault draws a fault of one worker: over the whole track if it pauses the worker, else
// as a line above it.
func (d *drawing) ownFault(x scale, b band, y float64) {
	from, width := x.box(b.span)
	if !b.pauses() {
		d.rect("cut", from, y+3, width, 4, b.title())
		return
	}
	d.rect("paused", from, y+5, width, 26, b.title())
	if label := "paused " + lasts(b.span); textWidth(label) < width {
		d.text("paused-name", from+width/2, y+22, middle, label)
	}
}

// token writes the token on the span in which it was held, if there is room.
func (d *drawing) token(x scale, s span, center float64) {
	from, width := x.box(s)
	if label := fmt.Sprint(s.token); s.token != 0 && textWidth(label)+6 < width {
		d.text("token", from+4, center+4, start, label)
	}
}

// spans draws spans as boxes.
func (d *drawing) spans(class, what string, x scale, spans []span, y, height float64) {
	for _, s := range spans {
		if float64(s.to) < x.fromValue || float64(s.from) > x.toValue {
			continue
		}
		title := fmt.Sprintf("%s for %s", what, lasts(s))
		if s.token != 0 {
			title += fmt.Sprintf(", token %d", s.token)
		}
		from, width := x.box(s)
		d.rect(class, from, y, width, height, title)
	}
}

// level draws the level of the resource between two heights, red below zero.
func (d *drawing) level(s timelineView, top, bottom float64) {
	low, high := s.level.visible(s.x)
	y := scale{float64(low), float64(high), bottom - 4, top + 8}
	d.text("small", s.x.fromPixel, top-4, start, s.measure)
	for _, tick := range y.ticks(4) {
		d.line("grid", s.x.fromPixel, y.at(tick), s.x.toPixel, y.at(tick))
		d.text("axis", timelineLeft-6, y.at(tick)+3.5, end, compact(tick))
	}
	line, debt := s.level.steps(s.x, y)
	d.path("debt", debt, "")
	d.line("zero", s.x.fromPixel, y.at(0), s.x.toPixel, y.at(0))
	d.path("level", line, "")
	if least := s.level.lowest(); least < 0 {
		d.text("debt-name", s.x.toPixel-4, y.at(float64(low))-3, end, fmt.Sprintf("%s below zero", thousands(-least)))
	}
}

// visible returns the lowest and the highest level to draw, zero included.
func (l level) visible(x scale) (low, high int) {
	low, high = min(0, l.initial), max(1, l.initial)
	for _, c := range l.changes {
		if float64(c.at) <= x.toValue {
			low, high = min(low, c.left), max(high, c.left)
		}
	}
	return low, high
}

// box returns where a span begins, and its width: at least a pixel.
func (s scale) box(b span) (from, width float64) {
	from = s.within(float64(b.from))
	return from, max(1, s.within(float64(b.to))-from)
}

// thinned leaves out faults outside of the picture, and keeps one of those of a kind that
// begin at the same pixel.
func thinned(bands []band, x scale) []band {
	var out []band
	seen := map[string]bool{}
	for _, b := range bands {
		at := fmt.Sprintf("%s %.0f", b.kind(), x.within(float64(b.from)))
		if float64(b.to) < x.fromValue || float64(b.from) > x.toValue || seen[at] {
			continue
		}
		seen[at] = true
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b band) int { return cmp.Compare(a.from, b.from) })
	return out
}

func (b band) title() string { return b.name + ", " + lasts(b.span) }

// lasts is the duration of a span as text.
func lasts(s span) string { return seconds(time.Duration(s.to - s.from)) }

// textWidth estimates the width of a text in a figure.
func textWidth(text string) float64 { return 6.2 * float64(len(text)) }
