package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// oversold is what is left when a reads 10, b takes 9, and a then writes 10 - 2,
// which lets c take 8.
func oversold() ([]history.Event, *observe.Observation) {
	return []history.Event{
			{At: 1, Kind: history.Invoke, Op: "a"}, {At: 2, Kind: history.Invoke, Op: "b"}, {At: 3, Kind: history.Invoke, Op: "c"},
			{At: 10, Kind: history.OK, Op: "b"}, {At: 20, Kind: history.OK, Op: "a"}, // c was never answered
		}, &observe.Observation{
			Stocks: []observe.Stock{{Resource: "r", Initial: 10, Available: 0}, {Resource: "untouched", Initial: 4, Available: 4}},
			Effects: []observe.Effect{ // not in their order
				{Order: 3, Op: "c", Resource: "r", Quantity: 8, Seen: 8},
				{Order: 1, Op: "b", Resource: "r", Quantity: 9, Seen: 10},
				{Order: 2, Op: "a", Resource: "r", Quantity: 2, Seen: 10},
			},
		}
}

func TestRemaining_GoesByWhatWasSold(t *testing.T) {
	t.Parallel()
	levels := remaining(oversold())
	require.Equal(t, []level{
		{"r", 10, []change{{3, 2}, {10, -7}, {20, -9}}}, // that without an answer counts from its beginning
		{"untouched", 4, nil},
	}, levels)
	require.Equal(t, -9, levels[0].lowest())
	require.Equal(t, 4, levels[1].lowest())
}

func TestBalance_IsWhatTheBooksDoNotKnowOf(t *testing.T) {
	t.Parallel()
	levels := balance(oversold())
	require.Equal(t, level{"r", 0, []change{{3, 0}, {10, 0}, {20, -9}}}, levels[0])
	require.Zero(t, levels[1].lowest())
}

func TestSteps_AreAPathWithItsDebt(t *testing.T) {
	t.Parallel()
	x, y := scale{0, 100, 0, 100}, scale{-10, 10, 200, 0}
	l := level{"r", 10, []change{{20, 5}, {50, -3}, {50, 1}, {80, -5}, {200, -9}}} // the last one is outside
	line, debt := l.steps(x, y)
	require.Equal(t, "M0 0H20V50H50V130V90H80V150H100", line)
	require.Equal(t, "M0 100H20V100H50V130H80V150H100V100Z", debt)
	_, debt = level{"r", 10, []change{{20, 0}}}.steps(x, y)
	require.Empty(t, debt)
}

func TestSteps_AreAFewForEachPixel(t *testing.T) {
	t.Parallel()
	l := level{initial: 100_000}
	for i := range 100_000 {
		l.changes = append(l.changes, change{int64(i), 100_000 - i})
	}
	line, _ := l.steps(scale{0, 100_000, 0, 500}, scale{0, 100_000, 100, 0})
	require.LessOrEqual(t, strings.Count(line, "H"), 502)
}

func TestScarce_IfStockRunsLow(t *testing.T) {
	t.Parallel()
	events, observed := oversold()
	require.True(t, (&trace{events: events, observed: observed}).scarce())
	observed.Stocks[0].Initial = 1000
	observed.Effects = observed.Effects[:1]
	require.False(t, (&trace{events: events, observed: observed}).scarce())
	require.Equal(t, 992, (&trace{events: events, observed: observed}).levels(true)[0].lowest())
	require.NotEqual(t, 992, (&trace{events: events, observed: observed}).levels(false)[0].lowest())
}
