package result

import (
	"math"
	"slices"
	"time"
)

// Spread is the median of some values, between the smallest and the largest.
type Spread struct {
	Median, Min, Max float64
	Count            int
}

// Of returns the spread of values, without those that are not numbers, as a rate of 0 divided by 0.
func Of(values []float64) Spread {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(values)), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	n := len(sorted)
	if n == 0 {
		return Spread{}
	}
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], Count: n}
}

// Ratios divides the values by those of the baseline in the same round, which are the keys.
func Ratios(values, baseline map[int]float64) (ratios []float64) {
	for round, v := range values {
		if b, ok := baseline[round]; ok {
			ratios = append(ratios, v/b)
		}
	}
	return ratios
}

// Rotated returns the order of a round: over as many rounds as there are items each has had each place once.
func Rotated[T any](items []T, round int) []T {
	if len(items) == 0 {
		return nil
	}
	first := round % len(items)
	return slices.Concat(items[first:], items[:first])
}

// Percentile returns the least of the durations, which are sorted, that p percent of them don't exceed; 0 without
// durations.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(p/100*float64(len(sorted)))), 1)-1]
}
