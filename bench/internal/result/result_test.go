package result

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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

// Over as many rounds as there are contenders each has every place once.
func TestRotated_GivesEachEveryPlace(t *testing.T) {
	items := []string{"a", "b", "c"}
	places := map[string][]int{}
	for round := range items {
		order := Rotated(items, round)
		require.ElementsMatch(t, items, order)
		for place, item := range order {
			places[item] = append(places[item], place)
		}
	}
	for _, item := range items {
		require.ElementsMatch(t, []int{0, 1, 2}, places[item])
	}
	require.Equal(t, Rotated(items, 0), Rotated(items, 3))
	require.Equal(t, []string{"a", "b", "c"}, items)
	require.Empty(t, Rotated([]string(nil), 1))
}

func TestHistogram_FindsPercentiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		durations := rapid.SliceOfN(rapid.Map(rapid.Int64Range(0, int64(time.Hour)), func(n int64) time.Duration { return time.Duration(n) }), 1, 50).Draw(t, "durations")
		whole, left, right := NewHistogram(), Histogram{}, Histogram{}
		var sum time.Duration
		for i, d := range durations {
			whole.Add(d)
			[]*Histogram{&left, &right}[i%2].Add(d)
			sum += d
		}
		left.Merge(right)
		slices.Sort(durations)
		p := rapid.Float64Range(1, 100).Draw(t, "p")
		exact := durations[max(int(math.Ceil(p/100*float64(len(durations)))), 1)-1]
		for _, h := range []Histogram{whole, left} {
			got := h.Percentile(p)
			if got < exact || float64(got) > float64(exact)*(1+1.0/subBuckets) {
				t.Fatalf("p%v is %v, exactly %v", p, got, exact)
			}
			if h.Count() != int64(len(durations)) || h.Max != durations[len(durations)-1] || h.Mean() != sum/time.Duration(len(durations)) {
				t.Fatalf("%+v", h)
			}
		}
	})
}

func TestHistogram_OfNothing(t *testing.T) {
	var h Histogram
	require.Zero(t, h.Mean())
	require.Zero(t, h.Percentile(99))
	require.Zero(t, h.Count())
}
