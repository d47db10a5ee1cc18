package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

func TestDrawing_EscapesText(t *testing.T) {
	t.Parallel()
	d := newDrawing(10, 5.55, `a"<b>`)
	d.rect("c", 1, 2, 3.04, 4.06, "t<>")
	d.text("c", 1, 2, end, "x&<")
	d.path("c", "", "nothing")
	require.Equal(t, `<svg viewBox="0 0 10 5.6" role="img" aria-label="a&#34;&lt;b&gt;" xmlns="http://www.w3.org/2000/svg">`+
		`<rect class="c" x="1" y="2" width="3" height="4.1"><title>t&lt;&gt;</title></rect>`+
		`<text class="c" x="1" y="2" text-anchor="end">x&amp;&lt;</text></svg>`, string(d.done()))
}

func TestCut_KeepsItShort(t *testing.T) {
	t.Parallel()
	require.Equal(t, "é", cut("é"))
	long := cut(strings.Repeat("é", maxText))
	require.Equal(t, strings.Repeat("é", maxText/2)+"…", long)
	require.Equal(t, strings.Repeat("é", 3)+"…", short(strings.Repeat("é", 9), 4))
}

func TestScale_MapsAndTicks(t *testing.T) {
	t.Parallel()
	s := scale{0, 10, 100, 200}
	require.InDelta(t, 150, s.at(5), 1e-9)
	require.InDelta(t, 200, s.within(50), 1e-9)
	require.InDelta(t, 100, s.within(-50), 1e-9)
	require.InDelta(t, 0.1, s.perPixel(), 1e-9)
	require.Equal(t, []float64{0, 2, 4, 6, 8, 10}, s.ticks(5))
	require.Equal(t, []float64{-100, 0, 100}, scale{-150, 180, 0, 1}.ticks(4))
	require.Empty(t, scale{3, 3, 0, 1}.ticks(4))
	require.InDelta(t, 7, scale{3, 3, 7, 9}.at(3), 1e-9)
}

func TestDrawTimeline_ShowsTracksFaultsAndRejections(t *testing.T) {
	t.Parallel()
	line := &timeline{
		resource: "r", from: 0, to: 1000, bands: []band{{span{from: 100, to: 300}, "stop etcd"}, {span{from: 2000, to: 3000}, "later"}},
		tracks: []*track{{
			process: "w0", waiting: []span{{from: 0, to: 50}}, holding: []span{{50, 500, 77}}, fenced: []span{{500, 700, 77}}, both: []span{{from: 800, to: 900}},
			down: []span{{from: 900, to: 1000}}, bands: []band{{span{from: 200, to: 600}, "pause w0"}, {span{from: 10, to: 90}, "cut w0 off"}}, crosses: []cross{{700, 77, 88}, {701, 77, 88}, {2000, 1, 2}},
		}},
	}
	out := string(drawTimeline(timelineView{label: "l", timeline: line, level: level{initial: 3, changes: []change{{400, -2}}}, measure: "stock", marks: []mark{{1, "w0", 50}, {2, "w0", 52}, {3, "w9", 60}}, x: scale{0, 1000, timelineLeft, timelineWidth - 8}}))
	for what, n := range map[string]int{
		`class="waiting"`: 1, `class="holding"`: 1, `class="fenced"`: 1, `class="both"`: 1, `class="down"`: 1, `class="paused"`: 1, `class="cut"`: 1,
		`class="shared"`: 1, `class="rejected"`: 1, `class="mark"`: 2, `class="debt"`: 1, `class="level"`: 1, ">77</text>": 2, "stop etcd, 0</title>": 0,
		"holds for 0 µs, token 77": 1, "rejected: token 77, since 88 has claimed": 1, ">2 below zero</text>": 1, ">stop etcd</text>": 1,
	} {
		require.Equal(t, n, strings.Count(out, what), what)
	}
	require.Contains(t, out, `<circle class="mark" cx="66" cy="30" r="7.5"/>`) // 1 and 2 would cover each other: 1 stands 16 to the left of 2
	require.Contains(t, out, `<circle class="mark" cx="50" cy="30" r="7.5"/>`)
}

func TestTimelineView_TracksWithMarksAreNeverLeftOut(t *testing.T) {
	t.Parallel()
	s := timelineView{timeline: &timeline{}, marks: []mark{{1, "l", 0}, {2, "l", 0}, {3, "c", 0}}}
	for _, name := range "abcdefghijkl" {
		s.timeline.tracks = append(s.timeline.tracks, &track{process: string(name)})
	}
	var names string
	for _, l := range s.tracks() {
		names += l.process
	}
	require.Equal(t, "abcdefgl", names)
}

func TestDrawSmall_EnlargesALittleDebt(t *testing.T) {
	t.Parallel()
	levels := []level{{"r", 1000, []change{{5, -1}}}}
	out := string(drawSmall("l", levels, 0, 10))
	require.Contains(t, out, `class="debt"`)
	require.Contains(t, out, "M2 58.5L182 58.5") // zero leaves room below it, though the debt is a thousandth
	require.Equal(t, -1, levels[0].changes[0].left)
	require.NotContains(t, string(drawSmall("l", []level{{"r", 10, nil}}, 0, 10)), `class="debt"`)
	out = string(drawSmall("l", []level{{"r", 10, []change{{5, -10}}}}, 0, 10))
	require.Contains(t, out, "M2 37L182 37") // zero is in the middle: nothing is enlarged
}

func TestTokensOf_ReadsTheFence(t *testing.T) {
	t.Parallel()
	run := &trace{events: []history.Event{
		of(1, history.Claimed, "w0", 5), of(2, history.Claimed, "w1", 9), of(3, history.Claimed, "w0", 5), {At: 3, Kind: history.Claimed, Resource: "other", Token: 99},
		{At: 4, Kind: history.Rejected, Process: "w0", Resource: "r", Token: 5, Current: 9, Reason: "stale"}, {At: 5, Kind: history.OK, Op: "1"},
	}, observed: &observe.Observation{Effects: []observe.Effect{{Op: "1", Resource: "r", Token: 9}, {Op: "1", Resource: "other", Token: 9}, {Op: "1", Resource: "r"}}}}
	got := tokensOf(run, "r")
	require.Len(t, got.claims, 2)
	require.Len(t, got.rejections, 1)
	require.Equal(t, []change{{5, 9}}, got.writes)
	require.Equal(t, "M52 220V12", strings.Split(got.fence(scale{1, 6, 52, 52}, got.scale()), "H")[0]+"V12")
	out := string(drawTokens("l", got, 0, 10))
	require.Equal(t, 1, strings.Count(out, `class="rejected"`))
	require.Contains(t, out, "w0 rejected (stale): token 5, the fence was at 9")
	require.Contains(t, out, `class="write" d="M622 12h0"`)
}

func TestTokens_AreAFewForEachPixel(t *testing.T) {
	t.Parallel()
	var many tokens
	for i := range int64(100_000) {
		many.claims = append(many.claims, history.Event{At: i, Token: i + 1})
		many.writes = append(many.writes, change{i, int(i + 1)})
		many.rejections = append(many.rejections, history.Event{At: i, Token: i + 1})
	}
	require.Less(t, len(drawTokens("l", many, 0, 100_000)), 150_000)
}

func TestTimingsOf_EachScenarioAndAllWithoutFaults(t *testing.T) {
	t.Parallel()
	q := func(d time.Duration) result.Quantiles {
		return result.Quantiles{Count: 1, P50: d, P90: d, P99: d, Max: d}
	}
	timings := timingsOf(&result.Suite{Runs: []result.Run{
		{Scenario: "a", Group: result.Fenced, Faults: true, Latency: q(time.Millisecond), HandOver: q(time.Second)},
		{Scenario: "a", Group: result.Fenced, Faults: true, Latency: q(3 * time.Millisecond)},
		{Scenario: "a", Group: "redlock", Faults: true, Latency: q(time.Hour)},
		{Scenario: "b", Group: result.Fenced, Latency: q(2 * time.Millisecond)},
	}})
	require.Len(t, timings, 2)
	require.Equal(t, "a", timings[0].Scenario)
	require.Equal(t, 3*time.Millisecond, timings[0].Latency.Max)
	require.Equal(t, time.Second, timings[0].HandOver.P50)
	require.Equal(t, "without faults", timings[1].Scenario)
	require.Equal(t, 2, strings.Count(string(timings[0].Figure), "<circle"))
	require.Equal(t, 1, strings.Count(string(timings[1].Figure), "<circle"))
}
