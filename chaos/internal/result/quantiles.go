package result

import (
	"slices"
	"time"
)

// Quantiles are the quantiles of Count times: each is one of the times.
type Quantiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"` // ns
	P90   time.Duration `json:"p90"` // ns
	P99   time.Duration `json:"p99"` // ns
	Max   time.Duration `json:"max"` // ns
}

func quantilesOf(times []time.Duration) Quantiles {
	if len(times) == 0 {
		return Quantiles{}
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { return times[(len(times)*percent+99)/100-1] } // nearest rank
	return Quantiles{len(times), at(50), at(90), at(99), at(100)}
}

// worse takes the greater of each quantile, and adds up the counts.
func (q Quantiles) worse(r Quantiles) Quantiles {
	return Quantiles{q.Count + r.Count, max(q.P50, r.P50), max(q.P90, r.P90), max(q.P99, r.P99), max(q.Max, r.Max)}
}
