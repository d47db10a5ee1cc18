package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// Operations count together while they are open and use the same resource.
func TestHits_OperationsAtOnce(t *testing.T) {
	invoke := func(process, op string, resources ...string) history.Event {
		return history.Event{Kind: history.Invoke, Process: process, Op: op, Resources: resources}
	}
	a, b, c := invoke("w1", "a", "sku/1"), invoke("w2", "b", "sku/1", "sku/2"), invoke("w1", "c", "sku/2")
	for name, tc := range map[string]struct {
		events []history.Event
		want   int
	}{
		"one":                  {[]history.Event{a}, 0},
		"two":                  {[]history.Event{a, b}, 2},
		"two on each, not six": {[]history.Event{a, b, c}, 2},
		"three":                {[]history.Event{a, b, invoke("w1", "d", "sku/1")}, 3},
		"one after another":    {[]history.Event{a, {Kind: history.OK, Process: "w1", Op: "a"}, b}, 0},
		"after a process":      {[]history.Event{a, {Kind: history.Ends, Process: "w1"}, b}, 0},
	} {
		require.Equal(t, tc.want, check.Hits(&check.Record{Events: tc.events})[check.HitTogether], name)
	}
}

// Lock keys of the same resource count together while they exist; a key that is written
// again counts once.
func TestHits_LockKeysAtOnce(t *testing.T) {
	come := func(resource string, token int64) observe.LockEvent {
		return observe.LockEvent{Resource: resource, Revision: token, Created: token}
	}
	for name, tc := range map[string]struct {
		events []observe.LockEvent
		want   int
	}{
		"one":                {[]observe.LockEvent{come("sku/1", 3)}, 0},
		"three":              {[]observe.LockEvent{come("sku/1", 3), come("sku/1", 4), come("sku/1", 5)}, 3},
		"of two resources":   {[]observe.LockEvent{come("sku/1", 3), come("sku/2", 4)}, 0},
		"one after another":  {[]observe.LockEvent{come("sku/1", 3), {Resource: "sku/1", Revision: 4, Created: 3, Gone: true}, come("sku/1", 5)}, 0},
		"one, written again": {[]observe.LockEvent{come("sku/1", 3), {Resource: "sku/1", Revision: 4, Created: 3}}, 0},
	} {
		r := &check.Record{Observed: observe.Observation{Locks: observe.Locks{Events: tc.events}}}
		require.Equal(t, tc.want, check.Hits(r)[check.HitQueued], name)
	}
}

// A hit that is required several times has to happen that often.
func TestRequired_CountsHits(t *testing.T) {
	m := good()
	for number, want := range map[int]check.Status{1: check.Held, 12: check.Held, 13: check.Unchecked} {
		m.Requires = []string{check.AtLeast(number, check.HitFailed+"stale token")}
		for range 12 - check.Hits(&m.Record)[check.HitFailed+"stale token"] {
			op := m.invoke("w1", "do", "sku/1")
			m.end(op, history.Fail, "stale token")
		}
		require.Equal(t, want, found(t, &m.Record, "I11").Status, number)
	}
}
