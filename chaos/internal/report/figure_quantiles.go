package report

import (
	"fmt"
	"html/template"
	"math"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

// timing is the quantiles of the runs of a scenario under Fencekit.
type timing struct {
	Scenario string
	Latency  result.Quantiles
	HandOver result.Quantiles
	Figure   template.HTML // of both
}

// timingsOf returns the timings of each scenario with faults, and of all without.
func timingsOf(suite *result.Suite) []timing {
	calm := "without faults"
	runs := map[string][]result.Run{}
	var names []string
	for _, r := range suite.Runs {
		name := r.Scenario
		if !r.Faults {
			name = calm
		}
		if r.Group == result.Fenced {
			runs[name] = append(runs[name], r)
		}
	}
	for _, name := range append(scenarios(suite, ""), calm) {
		if len(runs[name]) > 0 {
			names = append(names, name)
		}
	}
	longest := time.Duration(0)
	var timings []timing
	for _, name := range names {
		sum := result.Sum(runs[name])
		timings = append(timings, timing{Scenario: name, Latency: sum.Latency, HandOver: sum.HandOver})
		longest = max(longest, sum.Latency.Max, sum.HandOver.Max)
	}
	for i := range timings {
		timings[i].Figure = drawQuantiles(timings[i], longest)
	}
	return timings
}

// drawQuantiles draws a bar from p50 to p99 for latency and for hand-over, with a
// mark at the maximum, from 0.1 ms on and in powers of ten.
func drawQuantiles(t timing, longest time.Duration) template.HTML {
	const width, height = 300, 30
	d := newDrawing(width, height, fmt.Sprintf("%s: latency p50 %s, p99 %s; hand-over p50 %s, p99 %s", t.Scenario,
		seconds(t.Latency.P50), seconds(t.Latency.P99), seconds(t.HandOver.P50), seconds(t.HandOver.P99)))
	log := func(v time.Duration) float64 { return math.Log10(max(v.Seconds(), 1e-4)) }
	x := scale{-4, math.Ceil(max(log(longest), -3)), 4, width - 4}
	for tick := x.fromValue; tick <= x.toValue; tick++ {
		d.line("grid", x.at(tick), 0, x.at(tick), height)
	}
	for i, q := range []result.Quantiles{t.Latency, t.HandOver} {
		if q.Count == 0 {
			continue
		}
		y := 5 + float64(i)*13
		class := []string{"latency", "handover"}[i]
		d.rect(class, x.at(log(q.P50)), y, max(2, x.at(log(q.P99))-x.at(log(q.P50))), 7, "from p50 to p99")
		d.rect(class, x.at(log(q.P90))-0.5, y-2, 1.5, 11, "p90")
		d.circle(class, x.at(log(q.Max)), y+3.5, 3, "the maximum")
	}
	return d.done()
}

// Both are the quantiles in the order of the table.
func (t timing) Both() []result.Quantiles { return []result.Quantiles{t.Latency, t.HandOver} }
