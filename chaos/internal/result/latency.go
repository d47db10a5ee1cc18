package result

import (
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// latency is how long operations took that took effect.
func latency(record *check.Record) Quantiles {
	invoked := map[string]int64{}
	var times []time.Duration
	for _, e := range record.Events {
		switch e.Kind {
		case history.Invoke:
			invoked[e.Op] = e.At
		case history.OK:
			if at, ok := invoked[e.Op]; ok {
				times = append(times, time.Duration(e.At-at))
			}
		}
	}
	return quantilesOf(times)
}
