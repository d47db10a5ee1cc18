package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// level is a number of units of a resource over time.
type level struct {
	resource string
	initial  int
	changes  []change // in the order of their times
}

// change is the level from a time on.
type change struct {
	at   int64
	left int
}

// lowest is the lowest level.
func (l level) lowest() int {
	low := l.initial
	for _, c := range l.changes {
		low = min(low, c.left)
	}
	return low
}

// remaining returns what remained of each resource: the initial stock minus what orders say
// was sold, in the order in which the operations were answered. An operation without an
// answer counts from its beginning.
func remaining(events []history.Event, observed *observe.Observation) []level {
	when := answered(events)
	var levels []level
	for _, s := range observed.Stocks {
		levels = append(levels, levelOf(s.Resource, s.Initial, when, observed, func(e observe.Effect) int { return -e.Quantity }))
	}
	return levels
}

// balance returns what remained of each resource minus its stock column: 0 as long as every
// order was taken from stock, and lower by what was sold and then overwritten by an
// operation that wrote late, or decided on an old value.
func balance(events []history.Event, observed *observe.Observation) []level {
	when := answered(events)
	var levels []level
	for _, s := range observed.Stocks {
		stock := s.Initial // as it was written
		levels = append(levels, levelOf(s.Resource, 0, when, observed, func(e observe.Effect) int {
			taken := stock - (e.Seen - e.Quantity)
			stock -= taken
			return taken - e.Quantity
		}))
	}
	return levels
}

// levelOf adds up the changes by the effects on a resource. by is called in the order in
// which the effects were written; the level is in the order of their operations' times.
func levelOf(resource string, initial int, when map[string]int64, observed *observe.Observation, by func(observe.Effect) int) level {
	var effects []observe.Effect
	for _, e := range observed.Effects {
		if e.Resource == resource {
			effects = append(effects, e)
		}
	}
	slices.SortStableFunc(effects, func(a, b observe.Effect) int { return cmp.Compare(a.Order, b.Order) })
	l := level{resource: resource, initial: initial}
	for _, e := range effects {
		l.changes = append(l.changes, change{when[e.Op], by(e)})
	}
	slices.SortStableFunc(l.changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	left := initial
	for i := range l.changes {
		left += l.changes[i].left
		l.changes[i].left = left
	}
	return l
}

// answered returns when each operation was answered, or began if it never was.
func answered(events []history.Event) map[string]int64 {
	when := map[string]int64{}
	for _, e := range events {
		if e.Kind == history.Invoke || e.Kind == history.OK {
			when[e.Op] = e.At
		}
	}
	return when
}

// steps returns the path of a level, with at most three points for each pixel, and the area
// below zero. It ends at the scale's end.
func (l level) steps(x, y scale) (line, debt string) {
	var p, d strings.Builder
	zero := number(y.at(0))
	left := l.initial
	fmt.Fprintf(&p, "M%s %s", number(x.fromPixel), number(y.within(float64(left))))
	fmt.Fprintf(&d, "M%s %s", number(x.fromPixel), zero)
	for i := 0; i < len(l.changes) && float64(l.changes[i].at) <= x.toValue; {
		column := math.Round(x.within(float64(l.changes[i].at)))
		low := left
		for ; i < len(l.changes) && math.Round(x.within(float64(l.changes[i].at))) == column; i++ {
			left = l.changes[i].left
			low = min(low, left)
		}
		fmt.Fprintf(&p, "H%sV%s", number(column), number(y.within(float64(low))))
		if left != low {
			fmt.Fprintf(&p, "V%s", number(y.within(float64(left))))
		}
		fmt.Fprintf(&d, "H%sV%s", number(column), number(y.within(min(0, float64(low)))))
	}
	fmt.Fprintf(&p, "H%s", number(x.toPixel))
	fmt.Fprintf(&d, "H%sV%sZ", number(x.toPixel), zero)
	if l.lowest() >= 0 {
		return p.String(), ""
	}
	return p.String(), d.String()
}

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
