package report

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// tokens is what happened to the fence of a resource over time.
type tokens struct {
	claims     []history.Event // that moved it, in order
	writes     []change        // the token of each write
	rejections []history.Event
}

// tokensOf reads the tokens of a run under Fencekit.
func tokensOf(t *trace, resource string) tokens {
	var out tokens
	for _, e := range t.events {
		if e.Resource != resource {
			continue
		}
		switch e.Kind {
		case history.Claimed:
			if n := len(out.claims); n == 0 || e.Token > out.claims[n-1].Token {
				out.claims = append(out.claims, e)
			}
		case history.Rejected:
			out.rejections = append(out.rejections, e)
		}
	}
	when := answered(t.events)
	for _, e := range t.observed.Effects {
		if e.Resource == resource && e.Token != 0 {
			out.writes = append(out.writes, change{when[e.Op], int(e.Token)})
		}
	}
	return out
}

// Sizes of the tokens figure, in pixels.
const (
	tokensWidth  = 1200
	tokensHeight = 250
	tokensLeft   = 52
)

// drawTokens draws the fence as a line of steps, a dot for each write and a cross
// for each rejection, at most one of each for a pixel.
func drawTokens(label string, t tokens, from, to int64) template.HTML {
	d := newDrawing(tokensWidth, tokensHeight, label)
	x := scale{float64(from), float64(max(to, from+1)), tokensLeft, tokensWidth - 8}
	y := t.scale()
	for _, tick := range y.ticks(5) {
		d.line("grid", x.fromPixel, y.at(tick), x.toPixel, y.at(tick))
		d.text("axis", tokensLeft-6, y.at(tick)+3.5, end, fmt.Sprintf("%.0f", tick))
	}
	d.path("fence", t.fence(x, y), "the fence: the highest token that has claimed")
	seen := map[string]bool{}
	var dots strings.Builder
	for _, w := range t.writes {
		at := fmt.Sprintf("M%.0f %.0fh0", x.within(float64(w.at)), y.at(float64(w.left)))
		if !seen[at] {
			seen[at] = true
			dots.WriteString(at)
		}
	}
	d.path("write", dots.String(), "writes that took effect")
	for _, r := range t.rejections {
		at := fmt.Sprintf("x%.0f %.0f", x.within(float64(r.At))/3, y.at(float64(r.Token))/3)
		if seen[at] {
			continue
		}
		seen[at] = true
		d.cross("rejected", x.within(float64(r.At)), y.within(float64(r.Token)), 5,
			fmt.Sprintf("%s rejected (%s): token %d, the fence was at %d", r.Process, r.Reason, r.Token, r.Current))
	}
	d.timeAxis(x, tokensHeight-22)
	return d.done()
}

// scale is the scale of all tokens.
func (t tokens) scale() scale {
	low, high := int64(-1), int64(0)
	see := func(token int64) {
		if low < 0 || token < low {
			low = token
		}
		high = max(high, token)
	}
	for _, c := range t.claims {
		see(c.Token)
	}
	for _, r := range t.rejections {
		see(r.Token)
	}
	for _, w := range t.writes {
		see(int64(w.left))
	}
	return scale{float64(low), float64(max(high, low+1)), tokensHeight - 30, 12}
}

// fence is the path of the claims, with at most a step for each pixel.
func (t tokens) fence(x, y scale) string {
	var p strings.Builder
	column := -1
	for i, c := range t.claims {
		at := int(x.within(float64(c.At)))
		last := i == len(t.claims)-1
		switch {
		case i == 0:
			fmt.Fprintf(&p, "M%d %s", at, number(y.at(float64(c.Token))))
		case at != column || last:
			fmt.Fprintf(&p, "H%dV%s", at, number(y.at(float64(c.Token))))
		}
		column = at
	}
	if p.Len() > 0 {
		fmt.Fprintf(&p, "H%s", number(x.toPixel))
	}
	return p.String()
}
