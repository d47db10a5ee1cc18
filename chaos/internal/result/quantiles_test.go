package result

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

func TestQuantilesOf_IsTheNearestRank(t *testing.T) {
	t.Parallel()
	require.Zero(t, quantilesOf(nil))
	require.Equal(t, Quantiles{1, 7, 7, 7, 7}, quantilesOf([]time.Duration{7}))
	require.Equal(t, Quantiles{3, 2, 3, 3, 3}, quantilesOf([]time.Duration{3, 1, 2}))
	var times []time.Duration
	for i := 200; i > 0; i-- {
		times = append(times, time.Duration(i))
	}
	require.Equal(t, Quantiles{200, 100, 180, 198, 200}, quantilesOf(times))
}

func TestLatency_IsThatOfOperationsThatTookEffect(t *testing.T) {
	t.Parallel()
	got := latency(&check.Record{Events: []history.Event{
		{At: 10, Kind: history.Invoke, Op: "a"}, {At: 11, Kind: history.Invoke, Op: "b"}, {At: 12, Kind: history.Invoke, Op: "c"},
		{At: 15, Kind: history.Fail, Op: "b"}, {At: 17, Kind: history.OK, Op: "a"}, {At: 99, Kind: history.Unknown, Op: "c"},
		{At: 99, Kind: history.OK, Op: "whose beginning is missing"},
	}})
	require.Equal(t, Quantiles{1, 7, 7, 7, 7}, got)
}

func TestHandOver_IsFromTheKeysEndToTheClaimOfOneWhoWaited(t *testing.T) {
	t.Parallel()
	invoke := func(at int64, process, op string) history.Event {
		return history.Event{At: at, Kind: history.Invoke, Process: process, Op: op, Resources: []string{"r", "other"}}
	}
	claim := func(at, token int64, process string) history.Event {
		return history.Event{At: at, Kind: history.Claimed, Process: process, Resource: "r", Token: token}
	}
	gone := func(at, token int64) observe.LockEvent {
		return observe.LockEvent{At: at, Resource: "r", Created: token, Gone: true}
	}
	for name, c := range map[string]struct {
		events []history.Event
		keys   []observe.LockEvent
		want   Quantiles
	}{
		"waited": {[]history.Event{claim(1, 5, "a"), invoke(2, "b", "1"), claim(20, 6, "b")},
			[]observe.LockEvent{{At: 1, Resource: "r", Created: 5}, gone(12, 5)}, Quantiles{1, 8, 8, 8, 8}},
		"asked only when it was free": {[]history.Event{claim(1, 5, "a"), invoke(13, "b", "1"), claim(20, 6, "b")},
			[]observe.LockEvent{gone(12, 5)}, Quantiles{}},
		"had asked, and been answered": {[]history.Event{claim(1, 5, "a"), invoke(2, "b", "1"), {At: 3, Kind: history.Fail, Op: "1"}, claim(20, 6, "b")},
			[]observe.LockEvent{gone(12, 5)}, Quantiles{}},
		"had asked, and ended": {[]history.Event{claim(1, 5, "a"), invoke(2, "b", "1"), {At: 3, Kind: history.Ends, Process: "b"}, claim(20, 6, "b")},
			[]observe.LockEvent{gone(12, 5)}, Quantiles{}},
		"another ended": {[]history.Event{claim(1, 5, "a"), invoke(2, "b", "1"), {At: 3, Kind: history.Ends, Process: "a"}, claim(20, 6, "b")},
			[]observe.LockEvent{gone(12, 5)}, Quantiles{1, 8, 8, 8, 8}},
		"another's operation": {[]history.Event{claim(1, 5, "a"), invoke(2, "c", "1"), claim(20, 6, "b")},
			[]observe.LockEvent{gone(12, 5)}, Quantiles{}},
		"the same process again": {[]history.Event{claim(1, 5, "b"), invoke(2, "b", "1"), claim(20, 6, "b")},
			[]observe.LockEvent{gone(12, 5)}, Quantiles{}},
		"the deletion of the key was not observed": {[]history.Event{claim(1, 5, "a"), invoke(2, "b", "1"), claim(20, 6, "b")},
			[]observe.LockEvent{gone(12, 4), {At: 12, Resource: "r", Created: 5}}, Quantiles{}},
		"the observer hears late": {[]history.Event{claim(1, 5, "a"), invoke(2, "b", "1"), claim(20, 6, "b")},
			[]observe.LockEvent{gone(21, 5)}, Quantiles{Count: 1}},
	} {
		got := handOver(&check.Record{Events: c.events, Observed: observe.Observation{Locks: observe.Locks{Events: c.keys}}})
		require.Equal(t, c.want, got, name)
	}
}
