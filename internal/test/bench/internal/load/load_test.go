package load

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/clock"
)

func TestTarget_KeysOfGoroutinesAndProcesses(t *testing.T) {
	spec := Spec{Cell: "c1", Process: 1, Processes: 2, Goroutines: 2, Width: 2, Table: 100}
	spec.Keys = Hot
	hot := NewTarget(spec)
	require.Equal(t, hot.Item(0), hot.Item(1))

	seen := map[string]bool{}
	spec.Keys = Distinct
	for process := range 2 {
		spec.Process = process
		target := NewTarget(spec)
		for g := range 2 {
			require.Equal(t, target.Item(g), target.Item(g))
			for _, sku := range target.Item(g).SKUs {
				require.False(t, seen[sku], sku)
				seen[sku] = true
			}
		}
	}
	require.Len(t, seen, 8)

	spec.Keys, spec.Table = Random, 10
	clear(seen)
	random := NewTarget(spec)
	for range 1000 {
		for _, sku := range random.Item(0).SKUs {
			seen[sku] = true
		}
	}
	require.Len(t, seen, spec.Table)

	spec.Keys, spec.Table = Fresh, 100
	clear(seen)
	for process := range 2 {
		spec.Process = process
		target := NewTarget(spec)
		for range 100 { // more than there are rows
			for _, resource := range target.Item(0).Resources {
				require.False(t, seen[resource], resource)
				seen[resource] = true
			}
		}
	}
}

// An operation counts if it ended within the measured time: those before it, and one that is
// under way when it ends, don't.
func TestWorker_CountsWhatEndsWithinTheMeasuredTime(t *testing.T) {
	for name, test := range map[string]struct {
		measured time.Duration
		counted  int64
	}{
		"a long time": {time.Hour, 8},
		"no time":     {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var w *worker
			var warm [2]bool // the first operation of each goroutine ends before the measured time
			do := func(_ context.Context, g int, _ Item) error {
				for warm[g] && (w.plan.Load() == nil || test.measured == 0 && clock.Now() <= w.plan.Load().End) {
					runtime.Gosched()
				}
				warm[g] = true
				return nil
			}
			w = newWorker(NewTarget(Spec{Goroutines: 2, Keys: Hot, Width: 1, Table: 1, Warm: time.Hour, Limit: 10}), Work{Do: do})
			o, err := w.run(t.Context(), func() (Plan, error) {
				start := clock.Now()
				return Plan{Start: start, End: start + int64(test.measured)}, nil
			})
			require.NoError(t, err)
			require.Empty(t, o.Err)
			require.Equal(t, test.counted, o.Operations)
			require.Greater(t, o.Succeeded, o.Operations, "those before the measured time succeeded too")
			require.Len(t, o.Latency, int(o.Operations))
		})
	}
}

// The measured time begins once every goroutine has used what it keeps.
func TestWorker_AsksForThePlanOnceAllAreWarm(t *testing.T) {
	target := NewTarget(Spec{Goroutines: 3, Keys: Distinct, Width: 1, Table: 3, Warm: time.Hour})
	var done [3]atomic.Bool
	work := Work{Do: func(_ context.Context, g int, _ Item) error { done[g].Store(true); return nil }}
	_, err := newWorker(target, work).run(t.Context(), func() (Plan, error) {
		require.True(t, done[0].Load() && done[1].Load() && done[2].Load())
		return Plan{}, nil
	})
	require.NoError(t, err)
}
