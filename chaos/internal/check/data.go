package check

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

func conservation(v *view, t *tally) {
	t.look("%d effects on %d resources", len(v.observed.Effects), len(v.observed.Stocks))
	if len(v.observed.Stocks) == 0 {
		t.lack("the final stock was not observed")
		return
	}
	stocked := map[string]bool{}
	for _, stock := range v.observed.Stocks {
		stocked[stock.Resource] = true
		effects := v.effects[stock.Resource]
		for _, b := range breaks(stock.Initial, effects) {
			e := effects[b.at]
			t.violate("%s: operation %s (token %d) decided on %d when %d were left: updates lost before it: %d",
				stock.Resource, e.Op, e.Token, e.Seen, b.left, b.at-b.from)
		}
		switch sold := sold(effects); {
		case sold > stock.Initial:
			t.violate("%s: %d of %d were sold", stock.Resource, sold, stock.Initial)
		case stock.Available != stock.Initial-sold:
			t.violate("%s: %d are left of %d after %d were sold", stock.Resource, stock.Available, stock.Initial, sold)
		}
	}
	for _, e := range v.observed.Effects {
		if !stocked[e.Resource] {
			t.violate("%s: operation %s sold %d of a resource that was never in stock", e.Resource, e.Op, e.Quantity)
		}
	}
}

func sold(effects []observe.Effect) (sum int) {
	for _, e := range effects {
		sum += e.Quantity
	}
	return sum
}

// chainBreak is an effect that decided on the stock as it was before the effects from number from on.
type chainBreak struct {
	at   int // number of the effect
	from int // number of the first one that it overwrote
	left int // the stock that it should have decided on
}

func breaks(initial int, effects []observe.Effect) (found []chainBreak) {
	left := []int{initial} // left[i] is the stock before effect i
	for i, e := range effects {
		left = append(left, e.Seen-e.Quantity)
		if e.Seen == left[i] {
			continue
		}
		b := chainBreak{at: i, from: max(i-1, 0), left: left[i]} // if the stock was never that
		for from := i - 1; from >= 0; from-- {
			if left[from] == e.Seen {
				b.from = from
				break
			}
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

func outcomes(v *view, t *tally) {
	t.look("%d operations with %d effects", len(v.operations), len(v.observed.Effects))
	if len(v.broken) > 0 {
		t.lack("the history of operations is invalid: %s", v.broken[0])
	}
	for _, op := range v.operations {
		op.checkEffects(t)
		for _, answer := range op.answers {
			if answer.Applied != op.applied() {
				t.violate("%s was resolved as applied=%v, and applied is %v", op, answer.Applied, op.applied())
			}
		}
	}
	for _, e := range v.observed.Effects {
		if v.byID[e.Op] == nil {
			t.violate("%s: operation %s took effect and was never invoked", e.Resource, e.Op)
		}
	}
}

func (op *operation) checkEffects(t *tally) {
	switch {
	case op.end == history.Fail && op.applied():
		t.violate("%s failed (%s) and took effect: %v", op, op.failure, op.effects)
	case op.end == history.OK && !op.applied():
		t.violate("%s was acknowledged and has no effect", op)
	case op.applied():
		for _, r := range op.resources {
			if n := op.effects[r]; n != 1 {
				t.violate("%s (%s) took effect %d times on %s", op, cmp.Or(op.end, "cut off"), n, r)
			}
		}
		for _, r := range slices.Sorted(maps.Keys(op.effects)) {
			if !slices.Contains(op.resources, r) {
				t.violate("%s took effect on %s, which is none of its resources", op, r)
			}
		}
	}
}

// progress checks I9: a worker that never releases a resource makes progress, and the others don't.
func progress(v *view, t *tally) {
	used := map[string]bool{}
	for _, op := range v.operations {
		for _, r := range op.resources {
			used[r] = true
		}
	}
	t.look("%d resources, %d operations within %v of the end of the faults", len(used), len(v.operations), v.Progress)
	reverted, final := v.phase(history.PhaseFaultsOver), v.phase(history.PhaseFinal)
	switch {
	case len(used) == 0 || v.Progress <= 0:
		t.lack("there were no operations, or no bound was given")
		return
	case reverted == 0 || final == 0:
		t.lack("the run didn't reach the end of its faults, or its last phase")
		return
	}
	failures := map[string]string{}
	for _, op := range v.operations {
		if op.ended == 0 || op.ended-max(op.invoked, reverted) >= int64(v.Progress) {
			t.violate("%s took longer than %v: %s", op, v.Progress, cmp.Or(op.failure, "it did not end"))
		}
		for _, r := range op.resources {
			switch {
			case op.invoked < final:
			case op.succeeded():
				delete(used, r)
			default:
				failures[r] = op.failure
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(used)) {
		t.violate("%s: no operation succeeded in the last phase; the last one: %s", r, cmp.Or(failures[r], "there was none"))
	}
	for _, key := range v.observed.Left {
		t.violate("lock key %s was left", key)
	}
}

// Counts are figures of a run.
type Counts struct {
	Operations int `json:"operations"`
	Unknown    int `json:"unknown"` // whose outcome was not resolved later, or that were cut off with their process
	Rejections int `json:"rejections"`
	Faults     int `json:"faults"`   // that were injected
	Oversold   int `json:"oversold"` // units
	Lost       int `json:"lost"`     // updates that another operation overwrote
}

func (v *view) counts() Counts {
	c := Counts{Operations: len(v.operations)}
	for _, op := range v.operations {
		if op.end != history.OK && op.end != history.Fail && len(op.answers) == 0 {
			c.Unknown++
		}
	}
	for _, e := range v.events {
		switch e.Kind {
		case history.Rejected:
			c.Rejections++
		case history.Injected:
			c.Faults++
		}
	}
	for _, stock := range v.observed.Stocks {
		c.Oversold += max(0, sold(v.effects[stock.Resource])-stock.Initial)
		c.Lost += lost(stock.Initial, v.effects[stock.Resource])
	}
	return c
}
