package check

import (
	"maps"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// conservation checks I2: a resource's stock fell by what was sold of it, no more was sold
// than it had, and each operation decided on what the one before it had left.
func conservation(v *view, t *tally) {
	t.look("%d effects on %d resources", len(v.Observed.Effects), len(v.Observed.Stocks))
	if len(v.Observed.Stocks) == 0 {
		t.lack("the final stock was not observed")
		return
	}
	stocked := map[string]bool{}
	for _, stock := range v.Observed.Stocks {
		stocked[stock.Resource] = true
		conserve(stock, v.effects[stock.Resource], t)
	}
	for _, e := range v.Observed.Effects {
		if !stocked[e.Resource] {
			t.violate("%s: operation %s sold %d of a resource that was never in stock", e.Resource, e.Op, e.Quantity)
		}
	}
}

func conserve(stock observe.Stock, effects []observe.Effect, t *tally) {
	for _, b := range breaks(stock.Initial, effects) {
		e := effects[b.at]
		t.violate("%s: operation %s (token %d) decided on %d when %d were left: updates lost before it: %d",
			stock.Resource, e.Op, e.Token, e.Seen, b.left, b.at-b.from)
	}
	sold := 0
	for _, e := range effects {
		sold += e.Quantity
	}
	if sold > stock.Initial {
		t.violate("%s: %d of %d were sold", stock.Resource, sold, stock.Initial)
	}
	if stock.Available != stock.Initial-sold {
		t.violate("%s: %d are left of %d after %d were sold", stock.Resource, stock.Available, stock.Initial, sold)
	}
}

// chainBreak is an effect that doesn't follow the one before it: it decided on the stock as
// it was before the effects from number from on.
type chainBreak struct {
	at   int // number of the effect
	from int // number of the first one that it overwrote
	left int // the stock that it should have decided on
}

// breaks returns where the effects of a resource are no chain.
func breaks(initial int, effects []observe.Effect) (found []chainBreak) {
	left := make([]int, len(effects)+1) // left[i] is the stock before effect i
	left[0] = initial
	for i, e := range effects {
		left[i+1] = e.Seen - e.Quantity
		if e.Seen == left[i] {
			continue
		}
		b := chainBreak{at: i, from: i, left: left[i]}
		for b.from > 0 && left[b.from] != e.Seen {
			b.from--
		}
		if left[b.from] != e.Seen { // the stock was never that
			b.from = max(i-1, 0)
		}
		found = append(found, b)
	}
	return found
}

// lost is how many of the effects were overwritten by another that had not seen them.
func lost(initial int, effects []observe.Effect) int {
	overwritten := map[int]bool{}
	for _, b := range breaks(initial, effects) {
		for i := b.from; i < b.at; i++ {
			overwritten[i] = true
		}
	}
	return len(overwritten)
}

// outcomes checks I3: once on each of its resources if it was acknowledged, on none
// if it failed, and on all or none otherwise.
func outcomes(v *view, t *tally) {
	t.look("%d operations with %d effects", len(v.operations), len(v.Observed.Effects))
	if len(v.broken) > 0 {
		t.lack("the history of operations is invalid: %s", v.broken[0])
	}
	for _, op := range v.operations {
		op.checkEffects(t)
		op.checkAnswers(t)
	}
	for _, e := range v.Observed.Effects {
		if v.byID[e.Op] == nil {
			t.violate("%s: operation %s took effect and was never invoked", e.Resource, e.Op)
		}
	}
	for _, e := range v.Events {
		// "Not applied" may be about an earlier attempt of the operation.
		if op := v.byID[e.Op]; e.Kind == history.Resolved && op != nil && e.Error == "" && e.Applied && !op.applied() {
			t.violate("%s was resolved as applied and has no effect", op)
		}
	}
}

func (op *operation) checkEffects(t *tally) {
	if op.end == history.Fail && op.applied() {
		t.violate("%s failed (%s) and took effect: %v", op, op.class, op.effects)
		return
	}
	if !op.applied() {
		if op.end == history.OK {
			t.violate("%s was acknowledged and has no effect", op)
		}
		return
	}
	for _, r := range op.resources {
		if n := op.effects[r]; n != 1 {
			t.violate("%s, %s, took effect %d times on %s", op, op.ending(), n, r)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(op.effects)) {
		if !slices.Contains(op.resources, r) {
			t.violate("%s took effect on %s, which is none of its resources", op, r)
		}
	}
}

func (op *operation) checkAnswers(t *tally) {
	for _, answer := range op.answers {
		if answer.Applied != op.applied() {
			t.violate("%s was resolved as applied=%v, and applied is %v", op, answer.Applied, op.applied())
		}
	}
}

// ending is how it ended, in words.
func (op *operation) ending() string {
	switch op.end {
	case history.OK:
		return "acknowledged"
	case history.Unknown:
		return "of unknown outcome"
	}
	return "cut off"
}

// Counts are figures of a run.
type Counts struct {
	Operations int `json:"operations"`
	OK         int `json:"ok"`      // with those that were later resolved as applied
	Failed     int `json:"failed"`  // with those that were later resolved as not applied
	Unknown    int `json:"unknown"` // that stayed so, or were cut off with their process
	Rejections int `json:"rejections"`
	Faults     int `json:"faults"`   // that were injected
	Oversold   int `json:"oversold"` // units
	Lost       int `json:"lost"`     // updates that another operation overwrote
}

// Count counts what happened in a run.
func Count(r *Record) Counts {
	v := newView(r)
	c := Counts{Operations: len(v.operations)}
	for _, op := range v.operations {
		switch op.outcome() {
		case history.OK:
			c.OK++
		case history.Fail:
			c.Failed++
		default:
			c.Unknown++
		}
	}
	for _, e := range r.Events {
		switch e.Kind {
		case history.Rejected:
			c.Rejections++
		case history.Injected:
			c.Faults++
		}
	}
	for _, stock := range r.Observed.Stocks {
		sold := 0
		for _, e := range v.effects[stock.Resource] {
			sold += e.Quantity
		}
		c.Oversold += max(0, sold-stock.Initial)
		c.Lost += lost(stock.Initial, v.effects[stock.Resource])
	}
	return c
}
