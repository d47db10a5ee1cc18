package run

import (
	"slices"
	"time"

	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
)

func values(o load.Outcome, used map[result.Metric]float64) map[result.Metric]float64 {
	v := map[result.Metric]float64{result.Operations: float64(o.Operations)}
	if o.Elapsed > 0 {
		v[result.Rate] = float64(o.Operations) / o.Elapsed.Seconds()
	}
	if o.Operations == 0 {
		return v
	}
	n := float64(o.Operations)
	v[result.ClientCPU], v[result.Allocations] = micros(o.CPU)/n, float64(o.Allocations)/n
	for m, total := range used {
		v[m] = total / n
	}
	slices.Sort(o.Latency)
	for m, p := range map[result.Metric]float64{result.P50: 50, result.P99: 99} {
		v[m] = micros(result.Percentile(o.Latency, p))
	}
	return v
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func written(s *scenario.Scenario) int64 {
	if s.Reads {
		return 0
	}
	return int64(max(s.Width, 1))
}

// lost is how many updates of succeeded operations the rows don't show, negative if they
// show more. What was cut off at the end may have taken effect or not.
func lost(o load.Outcome, width, sold int64) int64 {
	least, most := o.Succeeded*width, (o.Succeeded+o.Abandoned)*width
	switch {
	case sold < least:
		return least - sold
	case sold > most:
		return most - sold
	default:
		return 0
	}
}
