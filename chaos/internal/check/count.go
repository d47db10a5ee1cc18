package check

import "github.com/fencekit/fencekit/chaos/internal/history"

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
