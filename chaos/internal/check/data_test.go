package check_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// effect returns the first effect of an operation.
func (m *made) effect(op string) *observe.Effect {
	i := slices.IndexFunc(m.Observed.Effects, func(e observe.Effect) bool { return e.Op == op })
	return &m.Observed.Effects[i]
}

// without removes an operation's effects from the data, or only those on one resource.
func (m *made) without(op string, resource ...string) {
	m.Observed.Effects = slices.DeleteFunc(m.Observed.Effects, func(e observe.Effect) bool {
		return e.Op == op && (len(resource) == 0 || e.Resource == resource[0])
	})
}

// event returns the first event of a kind of an operation.
func (m *made) event(kind history.Kind, op string) *history.Event {
	i := slices.IndexFunc(m.Events, func(e history.Event) bool { return e.Kind == kind && e.Op == op })
	return &m.Events[i]
}

// omit removes events from the history.
func (m *made) omit(gone func(e history.Event) bool) { m.Events = slices.DeleteFunc(m.Events, gone) }

func TestConservation(t *testing.T) {
	flags(t, "I2", []spoiled{
		{"a lost update", func(m *made) { m.effect("op3").Seen++ }, check.Violated},
		{"a decision on a stock that never was", func(m *made) { m.effect("op1").Seen = 77 }, check.Violated},
		{"an oversell", func(m *made) {
			m.effect("op12").Quantity = 17
			m.Observed.Stocks[1].Available = -1
		}, check.Violated},
		{"unexplained stock", func(m *made) { m.Observed.Stocks[0].Available++ }, check.Violated},
		{"an effect on something else", func(m *made) {
			m.Observed.Effects = append(m.Observed.Effects, observe.Effect{Op: "op12", Resource: "sku/9", Quantity: 1})
		}, check.Violated},
		{"a row that vanished", func(m *made) { m.without("op3") }, check.Violated},
		{"no stock observed", func(m *made) { m.Observed.Stocks, m.Observed.Effects = nil, nil }, check.Unchecked},
		{"other order of rows", func(m *made) { slices.Reverse(m.Observed.Effects) }, check.Held},
	})
}

// An update is lost if another one that had not seen it overwrote it.
func TestCount_LostAndOversold(t *testing.T) {
	count := func(initial int, pairs ...int) (lost, oversold int) {
		r := &check.Record{Stock: true}
		r.Observed.Stocks = []observe.Stock{{Resource: "r", Initial: initial}}
		for i := 0; i < len(pairs); i += 2 {
			r.Observed.Effects = append(r.Observed.Effects, observe.Effect{Order: int64(i), Resource: "r", Seen: pairs[i], Quantity: pairs[i+1]})
		}
		c := check.Count(r)
		return c.Lost, c.Oversold
	}
	for _, c := range []struct {
		name           string
		pairs          []int
		lost, oversold int
	}{
		{"a chain", []int{10, 1, 9, 2, 7, 7}, 0, 0},
		{"two read the same", []int{10, 1, 10, 1, 9, 1}, 1, 0},
		{"one wrote over two", []int{10, 1, 9, 1, 10, 1}, 2, 0},
		{"three read the same", []int{10, 1, 10, 1, 10, 1}, 2, 0},
		{"one decided on a stock that never was", []int{10, 1, 33, 1, 32, 1}, 1, 0},
		{"the first decided on a stock that never was", []int{33, 1, 32, 1}, 0, 0},
		{"two sold the last one", []int{10, 10, 10, 10}, 1, 10},
	} {
		lost, oversold := count(10, c.pairs...)
		require.Equal(t, []int{c.lost, c.oversold}, []int{lost, oversold}, c.name)
	}
}

func TestOutcomes(t *testing.T) {
	flags(t, "I3", []spoiled{
		{"an operation twice", func(m *made) { m.Observed.Effects = append(m.Observed.Effects, *m.effect("op3")) }, check.Violated},
		{"a cut off one twice", func(m *made) { m.Observed.Effects = append(m.Observed.Effects, *m.effect("op9")) }, check.Violated},
		{"an unknown one twice", func(m *made) { m.Observed.Effects = append(m.Observed.Effects, *m.effect("op4")) }, check.Violated},
		{"an acknowledgement of nothing", func(m *made) { m.without("op3") }, check.Violated},
		{"an answer of applied and nothing there", func(m *made) { m.without("op4") }, check.Violated},
		{"a cut off one that took no effect", func(m *made) { m.without("op9") }, check.Held},
		{"half of several", func(m *made) { m.without("op6", "sku/2") }, check.Violated},
		{"half of several, cut off", func(m *made) {
			m.without("op6", "sku/2")
			m.omit(func(e history.Event) bool { return e.Op == "op6" && e.Kind == history.OK })
		}, check.Violated},
		{"an error with effect", func(m *made) { m.event(history.OK, "op3").Kind = history.Fail }, check.Violated},
		{"an answer that it was not applied", func(m *made) { m.event(history.Answer, "op4").Applied = false }, check.Violated},
		{"an answer that it was applied", func(m *made) { m.event(history.Answer, "op5").Applied = true }, check.Violated},
		{"an effect elsewhere", func(m *made) {
			e := *m.effect("op3")
			e.Resource = "sku/2"
			m.Observed.Effects = append(m.Observed.Effects, e)
		}, check.Violated},
		{"an effect of an unknown operation", func(m *made) {
			e := *m.effect("op3")
			e.Op = "op99"
			m.Observed.Effects = append(m.Observed.Effects, e)
		}, check.Violated},
		{"resolved as applied, and not there", func(m *made) {
			m.record(history.Event{Kind: history.Resolved, Op: "op2", Applied: true})
		}, check.Violated},
		{"not resolved", func(m *made) {
			m.record(history.Event{Kind: history.Resolved, Op: "op2", Applied: true, Error: "the database is unavailable"})
		}, check.Held},
		{"resolved as not applied", func(m *made) { m.record(history.Event{Kind: history.Resolved, Op: "op2"}) }, check.Held},
		{"an earlier run that was not applied", func(m *made) { m.record(history.Event{Kind: history.Resolved, Op: "op3"}) }, check.Held},
		{"an id twice", func(m *made) { m.record(*m.event(history.Invoke, "op3")) }, check.Unchecked},
		{"two ends", func(m *made) { m.record(*m.event(history.OK, "op3")) }, check.Unchecked},
		{"an end without a beginning", func(m *made) { m.record(history.Event{Kind: history.Fail, Op: "op99"}) }, check.Unchecked},
	})
}
