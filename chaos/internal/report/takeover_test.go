package report

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

// overtaken is a run in which w0 is paused while it holds, and w1 takes over.
func overtaken(group string, end ...history.Event) trace {
	events := []history.Event{
		invoked(1, "w0", "1", "r"), of(2, history.Acquired, "w0", 5), of(2, history.Claimed, "w0", 5),
		run(4, history.Injected, "cut w0 off"), run(5, history.Injected, "pause w0"),
		invoked(6, "w1", "2", "r"), of(9, history.Acquired, "w1", 8), of(10, history.Claimed, "w1", 8),
		run(20, history.Reverted, "pause w0"), run(20, history.Reverted, "cut w0 off"),
	}
	return trace{&result.Run{Group: group}, append(events, end...), &observe.Observation{Effects: []observe.Effect{{Op: "1", Resource: "r"}}}}
}

func TestTakeoverOf_WithTheFence(t *testing.T) {
	t.Parallel()
	run := overtaken(result.Fenced,
		history.Event{At: 20, Kind: history.Rejected, Process: "w0", Resource: "r", Token: 3, Current: 8, Reason: "stale"}, // of an earlier grant
		history.Event{At: 21, Kind: history.Rejected, Process: "w0", Resource: "r", Token: 5, Current: 8, Reason: "stale"})
	run.events = slices.Insert(run.events, 7, of(8, history.Claimed, "w0", 6))                                   // its own
	run.events = slices.Insert(run.events, 1, of(1, history.Claimed, "w2", 4), of(1, history.Released, "w2", 4)) // before
	got := takeoverOf(run)
	want := takeover{resource: "r", holder: "w0", token: 5, fault: band{span{from: 5, to: 20}, "pause w0"}, held: 2, next: "w1", nextAt: 10, nextTok: 8, endAt: 21, current: 8}
	require.Equal(t, want, got)
	require.True(t, got.complete())
	points, marks := got.points(true)
	require.Len(t, points, 4)
	require.Equal(t, []mark{{1, "w0", 2}, {2, "w0", 5}, {3, "w1", 10}, {4, "w0", 21}}, marks)
	require.Equal(t, "w0 goes on and tries to write. It is rejected (✕): its token 5 is older than 8, which has claimed.", points[3])

	got = takeoverOf(overtaken(result.Fenced)) // nothing was rejected
	require.Zero(t, got.endAt)
	require.False(t, got.complete())
	points, _ = got.points(true)
	require.Len(t, points, 3)
}

func TestTakeoverOf_AControl(t *testing.T) {
	t.Parallel()
	got := takeoverOf(overtaken("redlock", history.Event{At: 21, Kind: history.OK, Process: "w0", Op: "1"}))
	require.Equal(t, int64(9), got.nextAt)
	require.Equal(t, int64(21), got.endAt)
	points, _ := got.points(false)
	require.Equal(t, "w0 goes on and writes: nothing stops it.", points[3])

	late := overtaken("redlock", history.Event{At: 21, Kind: history.OK, Process: "w0", Op: "1"})
	late.observed.Effects[0].Resource = "other"
	require.Zero(t, takeoverOf(late).endAt) // it wrote something else
	late = overtaken("redlock", invoked(20, "w0", "3", "r"), history.Event{At: 21, Kind: history.OK, Process: "w0", Op: "3"})
	late.observed.Effects = append(late.observed.Effects, observe.Effect{Op: "3", Resource: "r"})
	require.Zero(t, takeoverOf(late).endAt) // it began afterwards
}

func TestTakeoverOf_WithoutAFaultIsAResourceAlone(t *testing.T) {
	t.Parallel()
	got := takeoverOf(trace{&result.Run{}, []history.Event{invoked(1, "w0", "1", "b", "a")}, &observe.Observation{}})
	require.Equal(t, takeover{resource: "a"}, got)
	points, marks := got.points(true)
	require.Empty(t, points)
	require.Empty(t, marks)
}

func TestTakeover_OfAFaultThatPausesNoProcess(t *testing.T) {
	t.Parallel()
	points, _ := takeover{holder: "w0", resource: "r", held: 1, fault: band{span{from: 2, to: 2_000_000_002}, "cut w0 off"}}.points(true)
	require.Equal(t, []string{"w0 holds r.", "w0: cut w0 off, for 2.00 s."}, points)
}

func TestCandidates_TheMostInstructiveFirst(t *testing.T) {
	t.Parallel()
	fenced := func(scenario string, seed uint64, verdict result.Verdict, rejections, operations int) result.Run {
		return result.Run{Scenario: scenario, Group: result.Fenced, Seed: seed, Faults: true, Verdict: verdict, Counts: result.Counts{Rejections: rejections, Operations: operations}}
	}
	suite := &result.Suite{Runs: []result.Run{
		fenced("a", 1, result.Pass, 0, 9), fenced("b", 1, result.Pass, 3, 9), fenced("b", 2, result.Pass, 3, 9), fenced("b", 3, result.Pass, 3, 4),
		fenced("c", 1, result.Violated, 0, 9), fenced(leadScenario, 1, result.Pass, 1, 9), {Scenario: "b", Group: result.Fenced, Seed: 2},
		{Scenario: "b", Group: "redlock", Seed: 2, Faults: true, Verdict: result.Violated, Findings: updatesLost, Breaks: check.OfData()},
		{Scenario: "a", Group: "redlock", Seed: 1, Verdict: result.Violated}, // without faults
	}}
	var order []string
	for _, r := range candidates(suite) {
		order = append(order, r.String())
	}
	require.Equal(t, []string{"c, fenced, seed 1", "stalled-holder, fenced, seed 1", "b, fenced, seed 2", "b, fenced, seed 3", "b, fenced, seed 1", "a, fenced, seed 1"}, order)
}

func TestBrokenControls_NotThoseThatBreakByDesignFirst(t *testing.T) {
	t.Parallel()
	control := func(group string, seed uint64, verdict result.Verdict, lost, oversold int) result.Run {
		return result.Run{Scenario: "a", Group: group, Seed: seed, Faults: true, Verdict: verdict, Counts: result.Counts{Lost: lost, Oversold: oversold}, Findings: updatesLost, Breaks: check.OfData()}
	}
	suite := &result.Suite{
		Groups: []result.Group{{Name: "no-lock", RedByDesign: true}},
		Runs: []result.Run{
			control("no-lock", 1, result.Violated, 9, 9), control("dead", 1, result.Violated, 0, 0), control("lost", 1, result.Violated, 1, 0),
			control("sold", 1, result.Violated, 1, 1), control("green", 1, result.Pass, 0, 0), control("sold", 2, result.Violated, 1, 1),
		},
	}
	var order []string
	for _, r := range brokenControls(suite, &result.Run{Scenario: "a", Group: result.Fenced, Seed: 1, Faults: true}) {
		order = append(order, r.Group)
	}
	require.Equal(t, []string{"sold", "lost", "dead", "no-lock"}, order)
}

func TestOutcome_SaysWhatHappened(t *testing.T) {
	t.Parallel()
	run := func(verdict result.Verdict, counts result.Counts) *result.Run {
		return &result.Run{Verdict: verdict, Counts: counts, Reason: "I9: stuck"}
	}
	for want, c := range map[string]struct {
		run    *result.Run
		lowest int
		scarce bool
	}{
		"1 unit sold that were not in stock.":            {run(result.Violated, result.Counts{Oversold: 1, Lost: 1}), -1, true},
		"1,234 updates were lost.":                       {run(result.Violated, result.Counts{Lost: 1234}), -1, false},
		"Violated: I9: stuck":                            {run(result.Violated, result.Counts{}), 0, true},
		"Stock never fell below zero: the lowest was 3.": {run(result.Pass, result.Counts{}), 3, true},
		"Nothing was lost, and nothing was sold twice.":  {run(result.Pass, result.Counts{}), 0, false},
		"The run is inconclusive.":                       {run(result.Inconclusive, result.Counts{}), -2, false},
	} {
		require.Equal(t, want, outcome(c.run, level{initial: 5, changes: []change{{1, c.lowest}}}, c.scarce))
	}
}

func TestWindow_IsAroundTheTurnOfALongRun(t *testing.T) {
	t.Parallel()
	const second = int64(1e9)
	full := takeover{held: 1, nextAt: 22 * second, endAt: 24 * second, fault: band{span: span{from: 20 * second}}}
	at := func(to int64, t takeover, changes ...change) []int64 {
		x := window(&timeline{to: to}, t, level{changes: changes})
		return []int64{int64(x.fromValue), int64(x.toValue)}
	}
	require.Equal(t, []int64{0, 12 * second}, at(12*second, full))
	require.Equal(t, []int64{0, 60 * second}, at(60*second, takeover{held: 1}))
	require.Equal(t, []int64{19 * second, 25*second + second/2}, at(60*second, full))
	require.Equal(t, []int64{19 * second, 30*second + 3*second/2}, at(60*second, full, change{29 * second, 1}, change{30 * second, -1}, change{40 * second, -2}))
	require.Equal(t, []int64{19 * second, 25 * second}, at(25*second, full))
}
