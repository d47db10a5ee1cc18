package report

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// overtaken is a run in which w0 is paused while it holds, and w1 takes over.
func overtaken(group string, end ...history.Event) *trace {
	events := []history.Event{
		invoked(1, "w0", "1", "r"), of(2, history.Acquired, "w0", 5), of(2, history.Claimed, "w0", 5),
		run(4, history.Injected, "cut w0 off"), run(5, history.Injected, "pause w0"),
		invoked(6, "w1", "2", "r"), of(9, history.Acquired, "w1", 8), of(10, history.Claimed, "w1", 8),
		run(20, history.Reverted, "pause w0"), run(20, history.Reverted, "cut w0 off"),
	}
	return &trace{&check.Run{Group: group}, append(events, end...), observe.Observation{Effects: []observe.Effect{{Op: "1", Resource: "r"}}}}
}

func TestTakeoverOf_WithTheFence(t *testing.T) {
	t.Parallel()
	run := overtaken(check.Fenced,
		history.Event{At: 20, Kind: history.Rejected, Process: "w0", Resource: "r", Token: 3, Current: 8, Reason: "stale"}, // of an earlier grant
		history.Event{At: 21, Kind: history.Rejected, Process: "w0", Resource: "r", Token: 5, Current: 8, Reason: "stale"})
	run.events = slices.Insert(run.events, 7, of(8, history.Claimed, "w0", 6))                                   // its own
	run.events = slices.Insert(run.events, 1, of(1, history.Claimed, "w2", 4), of(1, history.Released, "w2", 4)) // before
	got, ok := takeoverOf(run)
	require.True(t, ok)
	require.Equal(t, takeover{resource: "r", holder: "w0", token: 5, fault: band{span{from: 5, to: 20}, "pause w0"}, held: 2, next: "w1", nextAt: 10, nextToken: 8, endAt: 21, current: 8}, got)
	points, marks := got.points(true)
	require.Len(t, points, 4)
	require.Equal(t, []mark{{1, "w0", 2}, {2, "w0", 5}, {3, "w1", 10}, {4, "w0", 21}}, marks)
	require.Equal(t, "w0 goes on and tries to write. It is rejected (✕): its token 5 is older than 8, which has claimed.", points[3])

	got, ok = takeoverOf(overtaken(check.Fenced)) // nothing was rejected
	require.False(t, ok)
	require.Equal(t, takeover{resource: "r"}, got)
}

func TestTakeoverOf_AControl(t *testing.T) {
	t.Parallel()
	got, ok := takeoverOf(overtaken("redlock", history.Event{At: 21, Kind: history.OK, Process: "w0", Op: "1"}))
	require.True(t, ok)
	require.Equal(t, []int64{9, 21}, []int64{got.nextAt, got.endAt})
	points, _ := got.points(false)
	require.Equal(t, "w0 goes on and writes: nothing stops it.", points[3])

	late := overtaken("redlock", history.Event{At: 21, Kind: history.OK, Process: "w0", Op: "1"})
	late.observed.Effects[0].Resource = "other"
	_, ok = takeoverOf(late)
	require.False(t, ok, "it wrote something else")
	late = overtaken("redlock", invoked(20, "w0", "3", "r"), history.Event{At: 21, Kind: history.OK, Process: "w0", Op: "3"})
	late.observed.Effects = append(late.observed.Effects, observe.Effect{Op: "3", Resource: "r"})
	_, ok = takeoverOf(late)
	require.False(t, ok, "it began afterwards")
}

func invoked(at int64, process, op string, resources ...string) history.Event {
	return history.Event{At: at, Kind: history.Invoke, Process: process, Op: op, Resources: resources}
}

func of(at int64, kind history.Kind, process string, token int64) history.Event {
	return history.Event{At: at, Kind: kind, Process: process, Resource: "r", Token: token}
}

func run(at int64, kind history.Kind, name string) history.Event {
	return history.Event{At: at, Kind: kind, Process: history.Runner, Name: name}
}
