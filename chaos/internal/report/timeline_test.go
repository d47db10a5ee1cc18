package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

func of(at int64, kind history.Kind, process string, token int64) history.Event {
	return history.Event{At: at, Kind: kind, Process: process, Resource: "r", Token: token}
}

func invoked(at int64, process, op string, resources ...string) history.Event {
	return history.Event{At: at, Kind: history.Invoke, Process: process, Op: op, Resources: resources}
}

func run(at int64, kind history.Kind, name string) history.Event {
	return history.Event{At: at, Kind: kind, Process: history.Runner, Name: name}
}

func TestTimelineOf_ReadsWhoWaitedAndHeld(t *testing.T) {
	t.Parallel()
	line := timelineOf([]history.Event{
		run(5, history.Phase, history.PhaseLoad),
		invoked(10, "w10", "1", "r", "other"),
		of(20, history.Acquired, "w10", 7),
		of(25, history.Claimed, "w10", 7),
		invoked(30, "w2", "2", "r"),
		invoked(31, "w2", "3", "other"),
		run(35, history.Injected, "pause w10"),
		run(36, history.Injected, "isolate etcd"),
		of(40, history.Claimed, "w2", 9),
		{At: 41, Kind: history.OK, Process: "w2", Op: "2"},
		of(45, history.Released, "w2", 9),
		run(50, history.Reverted, "pause w10"),
		{At: 52, Kind: history.Rejected, Process: "w10", Resource: "r", Token: 7, Current: 9, Reason: "stale"},
		{At: 53, Kind: history.Fail, Process: "w10", Op: "1"},
		{At: 54, Kind: history.Rejected, Process: "w10", Resource: "r", Token: 7, Current: 9, Reason: "overtaken"},
		{At: 55, Kind: history.Ends, Process: "w2"},
		{At: 65, Kind: history.Starts, Process: "w2"},
		invoked(66, "w2", "4", "r"),
		run(70, history.Phase, history.PhaseEnd),
		run(80, history.Note, "late"),
	}, "r")
	require.Equal(t, int64(5), line.from)
	require.Equal(t, int64(70), line.to)
	require.Len(t, line.tracks, 2)
	require.Equal(t, &track{
		process: "w2", waiting: []span{{from: 30, to: 40}, {from: 66, to: 80}}, holding: []span{{40, 45, 9}}, down: []span{{from: 55, to: 65}},
	}, line.tracks[0])
	require.Equal(t, &track{
		process: "w10", waiting: []span{{from: 10, to: 20}}, holding: []span{{20, 52, 7}},
		bands: []band{{span{from: 35, to: 50}, "pause w10"}}, crosses: []cross{{52, 7, 9}},
	}, withoutWaitAfter(line.tracks[1], 52))
	require.Equal(t, []band{{span{from: 36, to: 80}, "isolate etcd"}}, line.bands)
}

// withoutWaitAfter leaves out the instant between a rejection and the end of its operation.
func withoutWaitAfter(l *track, at int64) *track {
	last := l.waiting[len(l.waiting)-1]
	if last.from == at {
		l.waiting = l.waiting[:len(l.waiting)-1]
	}
	return l
}

func TestTimelineOf_OfNothing(t *testing.T) {
	t.Parallel()
	require.Empty(t, timelineOf(nil, "r").tracks)
}

func TestTimelineOf_EndsWhatAProcessHeldWithIt(t *testing.T) {
	t.Parallel()
	line := timelineOf([]history.Event{
		invoked(1, "w0", "1", "r"), of(2, history.Acquired, "w0", 3), {At: 5, Kind: history.Ends, Process: "w0"}, run(9, history.Phase, history.PhaseEnd),
	}, "r")
	require.Equal(t, []span{{2, 5, 3}}, line.tracks[0].holding)
	require.Equal(t, []span{{from: 5, to: 9}}, line.tracks[0].down)
}

func TestMarkFenced_FromTheNextClaimOn(t *testing.T) {
	t.Parallel()
	events := []history.Event{
		invoked(1, "w0", "1", "r"), invoked(1, "w1", "2", "r"), of(2, history.Claimed, "w0", 5),
		{At: 3, Kind: history.Claimed, Process: "w1", Resource: "other", Token: 99},
		of(8, history.Claimed, "w1", 7), of(9, history.Claimed, "w1", 8), of(12, history.Lost, "w0", 5), of(14, history.Released, "w1", 8),
	}
	line := timelineOf(events, "r")
	line.markFenced(events)
	require.Equal(t, []span{{2, 8, 5}}, line.tracks[0].holding)
	require.Equal(t, []span{{8, 12, 5}}, line.tracks[0].fenced)
	require.Equal(t, []span{{8, 9, 7}, {9, 14, 8}}, line.tracks[1].holding)
	require.Empty(t, line.tracks[1].fenced)
}

func TestMarkBoth_WhereTwoProcessesHold(t *testing.T) {
	t.Parallel()
	line := &timeline{tracks: []*track{
		{process: "a", holding: []span{{1, 10, 0}, {4, 6, 0}}}, // with itself it doesn't count
		{process: "b", holding: []span{{8, 12, 0}, {20, 30, 0}}},
		{process: "c", holding: []span{{12, 20, 0}}},
	}}
	line.markBoth()
	require.Equal(t, []span{{from: 8, to: 10}}, line.tracks[0].both)
	require.Equal(t, []span{{from: 8, to: 10}}, line.tracks[1].both)
	require.Empty(t, line.tracks[2].both)
}

func TestMerged_KeepsWhatCanBeSeen(t *testing.T) {
	t.Parallel()
	require.Equal(t, []span{{0, 30, 1}, {35, 70, 2}}, merged([]span{{35, 70, 2}, {0, 30, 1}}, 10)) // large ones
	require.Equal(t, []span{{0, 12, 0}}, merged([]span{{0, 2, 1}, {5, 7, 2}, {10, 12, 2}}, 10))    // tiny ones
	require.Equal(t, []span{{0, 12, 2}}, merged([]span{{0, 2, 2}, {5, 12, 2}}, 10))                // of one token
	require.Equal(t, []span{{0, 2, 1}, {13, 14, 2}}, merged([]span{{0, 2, 1}, {13, 14, 2}}, 10))   // far apart
	require.Equal(t, []span{{0, 90, 0}}, merged([]span{{0, 90, 1}, {10, 50, 2}}, 10))              // within
	var many []span
	for i := range int64(100_000) {
		many = append(many, span{i * 10, i*10 + 5 + i%7, i})
	}
	require.LessOrEqual(t, len(merged(many, 1e6/600)), 600)
}

func TestTimelineOf_WaitsAgainAfterARelease(t *testing.T) {
	t.Parallel()
	line := timelineOf([]history.Event{
		invoked(1, "w0", "1", "r"), of(2, history.Acquired, "w0", 3), of(5, history.Released, "w0", 3), of(9, history.Acquired, "w0", 4), run(12, history.Phase, history.PhaseEnd),
	}, "r")
	require.Equal(t, []span{{from: 1, to: 2}, {from: 5, to: 9}}, line.tracks[0].waiting[:2])
}
