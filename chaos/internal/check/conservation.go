package check

import "github.com/fencekit/fencekit/chaos/internal/observe"

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
