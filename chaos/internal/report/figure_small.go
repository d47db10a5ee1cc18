package report

import (
	"html/template"
	"slices"
)

// Sizes of a small multiple, in pixels.
const (
	smallWidth  = 184
	smallHeight = 74
)

// leastDebt is the least share of a small multiple's height that a level below zero gets, so
// that it can be seen.
const leastDebt = 0.18

// drawSmall draws the levels of all resources of a run over its time, red below zero. There
// is no axis, and a level little below zero is drawn larger.
func drawSmall(label string, levels []level, from, to int64) template.HTML {
	levels = slices.Clone(levels)
	d := newDrawing(smallWidth, smallHeight, label)
	x := scale{float64(from), float64(max(to, from+1)), 2, smallWidth - 2}
	low, high := 0, 1
	for _, l := range levels {
		least, most := l.visible(x)
		low, high = min(low, least), max(high, most)
	}
	if least := -leastDebt * float64(high); low < 0 && float64(low) > least {
		factor := least / float64(low)
		for i := range levels {
			levels[i] = levels[i].stretched(factor)
		}
		low = int(least) - 1
	}
	y := scale{float64(low), float64(high), smallHeight - 6, 6}
	for _, l := range levels {
		_, debt := l.steps(x, y)
		d.path("debt", debt, "")
	}
	d.line("zero", x.fromPixel, y.at(0), x.toPixel, y.at(0))
	for _, l := range levels {
		line, _ := l.steps(x, y)
		d.path("level", line, cut(l.resource))
	}
	return d.done()
}

// stretched is the level with its part below zero enlarged.
func (l level) stretched(factor float64) level {
	changes := slices.Clone(l.changes)
	for i, c := range changes {
		if c.left < 0 {
			changes[i].left = int(float64(c.left)*factor) - 1
		}
	}
	l.changes = changes
	return l
}
