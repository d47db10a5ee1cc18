package report

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

const (
	timelineWidth = 620
	timelineLeft  = 36
	timelineTop   = 26
	trackHeight   = 34
	levelHeight   = 110
	maxTracks     = 8
)

func drawTimeline(line *timeline, l level, marks []mark, x scale, label string) template.HTML {
	tracks := line.tracks[:min(len(line.tracks), maxTracks)]
	bottom := timelineTop + float64(len(tracks)*trackHeight)
	d := newDrawing(timelineWidth, bottom+levelHeight+52, label)
	free := 0.0 // from here on there is room for the next name
	for _, b := range shown(line.bands, x) {
		from, width := x.box(b.span)
		d.rect("shared", from, timelineTop-4, width, bottom-timelineTop+4, b.title())
		if from >= free {
			d.text("small", from, timelineTop-9, start, b.name)
			free = from + textWidth(b.name) + 8
		}
	}
	for i, track := range tracks {
		d.track(x, track, timelineTop+float64(i*trackHeight))
	}
	for i, track := range tracks {
		free := x.toPixel // each mark is far enough to the left of the next one that both can be read
		for _, m := range slices.Backward(marks) {
			if m.process == track.process {
				at, y := min(x.within(m.at), free), timelineTop+float64(i*trackHeight)+4
				d.circle("mark", at, y, 7.5, "")
				d.text("mark-n", at, y+3.6, middle, strconv.Itoa(m.n))
				free = at - 16
			}
		}
	}
	top := bottom + 24
	y := scale{float64(min(-1, l.lowest())), 0, top + levelHeight - 4, top + 8}
	d.text("small", x.fromPixel, top-4, start, l.resource+": what orders leave of the stock, minus the stock column")
	d.valueAxis(x, y)
	d.level(x, y, l)
	if least := l.lowest(); least < 0 {
		d.text("debt-name", x.toPixel-4, y.at(float64(least))-3, end, thousands(-least)+" below zero")
	}
	d.timeAxis(x, top+levelHeight)
	return d.done()
}

func (d *drawing) track(x scale, l *track, y float64) {
	const top, height = 9, 18
	center := y + top + height/2
	d.text("name", timelineLeft-6, center+4, end, l.process)
	d.line("track", x.fromPixel, center, x.toPixel, center)
	d.spans("waiting", "waits", x, l.waiting, center-2, 4)
	for _, s := range []struct {
		class, what string
		spans       []span
	}{
		{"holding", "holds", l.holding}, {"fenced", "believes it holds, but a newer holder has claimed", l.fenced},
		{"both", "two workers hold the lock", l.both}, {"down", "the process has ended", l.down},
	} {
		d.spans(s.class, s.what, x, s.spans, y+top, height)
	}
	for _, b := range shown(l.bands, x) {
		from, width := x.box(b.span)
		if !b.pauses() {
			d.rect("cut", from, y+3, width, 4, b.title())
			continue
		}
		d.rect("paused", from, y+5, width, 26, b.title())
		if label := "paused " + b.lasts(); textWidth(label) < width {
			d.text("paused-name", from+width/2, y+22, middle, label)
		}
	}
	for _, s := range shown(slices.Concat(l.holding, l.fenced), x) {
		from, width := x.box(s)
		if label := fmt.Sprint(s.token); s.token != 0 && textWidth(label)+6 < width {
			d.text("token", from+4, center+4, start, label)
		}
	}
	for _, c := range l.crosses {
		if at := x.at(float64(c.at)); at >= x.fromPixel && at <= x.toPixel {
			d.cross(at, center, 7, fmt.Sprintf("rejected: token %d, since %d has claimed", c.token, c.current))
		}
	}
}

func (b band) title() string { return b.name + ", " + b.lasts() }

func (d *drawing) spans(class, what string, x scale, spans []span, y, height float64) {
	for _, s := range shown(spans, x) {
		title := what + " for " + s.lasts()
		if s.token != 0 {
			title += fmt.Sprintf(", token %d", s.token)
		}
		from, width := x.box(s)
		d.rect(class, from, y, width, height, title)
	}
}

// level is, over time, what orders leave of the stock of a resource minus its stock column: below zero by what was
// sold and then overwritten.
type level struct {
	resource string
	changes  []change // in the order of their times
}

type change struct {
	at    int64
	value int
}

func (l level) lowest() (low int) {
	for _, c := range l.changes {
		low = min(low, c.value)
	}
	return low
}

// levelsOf counts an order from its operation's answer, or from its beginning if there was none.
func levelsOf(t *trace) (levels []level) {
	when := answered(t)
	for _, s := range t.observed.Stocks {
		l, stock := level{resource: s.Resource}, s.Initial
		for _, e := range t.observed.Effects {
			if e.Resource == s.Resource {
				left := e.Seen - e.Quantity
				l.changes = append(l.changes, change{when[e.Op], stock - left - e.Quantity})
				stock = left
			}
		}
		slices.SortStableFunc(l.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
		sum := 0
		for i := range l.changes {
			sum += l.changes[i].value
			l.changes[i].value = sum
		}
		levels = append(levels, l)
	}
	return levels
}

func answered(t *trace) map[string]int64 {
	when := map[string]int64{}
	for _, e := range t.events {
		if e.Kind == history.Invoke || e.Kind == history.OK {
			when[e.Op] = e.At
		}
	}
	return when
}

// level draws at most two points for each pixel, and red below zero.
func (d *drawing) level(x, y scale, l level) {
	columns := map[float64]float64{} // the lowest pixel of each column
	last := 0
	for _, c := range l.changes {
		column := math.Round(x.within(c.at))
		columns[column] = max(columns[column], y.at(float64(c.value)))
		last = c.value
	}
	var p strings.Builder
	fmt.Fprintf(&p, "M%.1f %.1f", x.fromPixel, y.at(0))
	for _, column := range slices.Sorted(maps.Keys(columns)) {
		fmt.Fprintf(&p, "H%.0fV%.1f", column, columns[column])
	}
	if len(l.changes) > 0 {
		fmt.Fprintf(&p, "V%.1f", y.at(float64(last)))
	}
	fmt.Fprintf(&p, "H%.1f", x.toPixel)
	if l.lowest() < 0 {
		d.path("debt", p.String()+fmt.Sprintf("V%.1fZ", y.at(0)), "")
	}
	d.line("zero", x.fromPixel, y.at(0), x.toPixel, y.at(0))
	d.path("level", p.String(), l.resource)
}

const (
	smallWidth  = 184
	smallHeight = 74
)

func drawSmall(label string, t *trace) template.HTML {
	levels := levelsOf(t)
	if len(levels) == 0 {
		return ""
	}
	d := newDrawing(smallWidth, smallHeight, label)
	from, to := bounds(t.events)
	low := -1
	for _, l := range levels {
		low = min(low, l.lowest())
	}
	for _, l := range levels {
		d.level(timeScale(from, to, 2, smallWidth-2), scale{float64(low), 0, smallHeight - 6, 6}, l)
	}
	return d.done()
}

const (
	tokensWidth  = 1200
	tokensHeight = 250
	tokensLeft   = 52
)

// drawTokens draws the fence as a line of steps, a dot for each write and a cross for each rejection.
func drawTokens(t *trace, resource string) template.HTML {
	var claims []change
	var rejections []history.Event
	low, high := int64(math.MaxInt64), int64(0)
	for _, e := range t.events {
		if e.Resource != resource || e.Kind != history.Claimed && e.Kind != history.Rejected {
			continue
		}
		low, high = min(low, e.Token), max(high, e.Token)
		if e.Kind == history.Rejected {
			rejections = append(rejections, e)
		} else if n := len(claims); n == 0 || int(e.Token) > claims[n-1].value {
			claims = append(claims, change{e.At, int(e.Token)})
		}
	}
	if len(claims) == 0 {
		return ""
	}
	d := newDrawing(tokensWidth, tokensHeight, fmt.Sprintf("Tokens of %s over time: %d claims, %d rejections", resource, len(claims), len(rejections)))
	from, to := bounds(t.events)
	x := timeScale(from, to, tokensLeft, tokensWidth-8)
	y := scale{float64(low), float64(max(high, low+1)), tokensHeight - 30, 12}
	d.valueAxis(x, y)
	var fence, dots strings.Builder
	fmt.Fprintf(&fence, "M%.0f %.1f", x.within(claims[0].at), y.at(float64(claims[0].value)))
	for _, c := range claims[1:] {
		fmt.Fprintf(&fence, "H%.0fV%.1f", x.within(c.at), y.at(float64(c.value)))
	}
	d.path("fence", fence.String()+fmt.Sprintf("H%.1f", x.toPixel), "the fence: the highest token that has claimed")
	when := answered(t)
	for _, e := range t.observed.Effects {
		if e.Resource == resource {
			fmt.Fprintf(&dots, "M%.0f %.0fh0", x.within(when[e.Op]), y.at(float64(e.Token)))
		}
	}
	d.path("write", dots.String(), "writes that took effect")
	for _, r := range rejections {
		d.cross(x.within(r.At), y.at(float64(r.Token)), 5, fmt.Sprintf("%s rejected (%s): token %d, the fence was at %d", r.Process, r.Reason, r.Token, r.Current))
	}
	d.timeAxis(x, tokensHeight-22)
	return d.done()
}
