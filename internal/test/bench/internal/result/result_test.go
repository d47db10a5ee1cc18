package result

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOf_IsTheMedianBetweenTheSmallestAndTheLargest(t *testing.T) {
	require.Equal(t, Spread{Median: 3, Min: 1, Max: 9, Count: 3}, Of([]float64{9, 1, 3}))
	require.Equal(t, Spread{Median: 2.5, Min: 1, Max: 4, Count: 4}, Of([]float64{4, 1, 3, 2}))
	require.Equal(t, Spread{}, Of(nil))
	require.Equal(t, Spread{Median: 2, Min: 2, Max: 2, Count: 1}, Of([]float64{math.NaN(), 2, math.Inf(1)}))
}

func TestRatios_CompareWithinARound(t *testing.T) {
	values := map[int]float64{0: 10, 1: 40, 2: 5}
	baseline := map[int]float64{0: 20, 1: 10, 3: 7}
	require.ElementsMatch(t, []float64{0.5, 4}, Ratios(values, baseline))
}

func TestPercentile_IsTheNearestRank(t *testing.T) {
	require.Zero(t, Percentile(nil, 99))
	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	for p, want := range map[float64]time.Duration{0: 1, 50: 100, 90: 180, 99: 198, 99.9: 200, 100: 200} {
		require.Equal(t, want, Percentile(times, p), "p%v", p)
	}
}
