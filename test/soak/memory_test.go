package soak_test

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// What a run may grow by from its first third to its last: what clients keep for
// reconnecting varies with what was last done to them.
const (
	growth         = 1.25
	heapSlack      = 4 << 20
	goroutineSlack = 20
)

// growthWatch measures memory and goroutines at even distances.
type growthWatch struct {
	heap       []uint64 // in use, after a collection
	goroutines []int
}

// watch measures until stop is closed.
func (g *growthWatch) watch(every time.Duration, stop <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-stop:
			return
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		g.heap = append(g.heap, m.HeapInuse)
		g.goroutines = append(g.goroutines, runtime.NumGoroutine())
	}
}

func (g *growthWatch) String() string {
	heapThen, heapNow := thirds(g.heap)
	then, now := thirds(g.goroutines)
	return fmt.Sprintf("median of the first and the last third of %d samples: heap in use %.1f and %.1f MiB, goroutines %d and %d",
		len(g.heap), float64(heapThen)/(1<<20), float64(heapNow)/(1<<20), then, now)
}

// wrong returns what grows.
func (g *growthWatch) wrong() (wrong []string) {
	if then, now := thirds(g.heap); float64(now) > growth*float64(then)+heapSlack {
		wrong = append(wrong, fmt.Sprintf("memory grows: %v", g.heap))
	}
	if then, now := thirds(g.goroutines); float64(now) > growth*float64(then)+goroutineSlack {
		wrong = append(wrong, fmt.Sprintf("goroutines grow: %v", g.goroutines))
	}
	return wrong
}

// thirds returns the medians of the first and of the last third.
func thirds[T uint64 | int](samples []T) (first, last T) {
	n := len(samples) / 3
	median := func(part []T) T { return slices.Sorted(slices.Values(part))[len(part)/2] }
	return median(samples[:n]), median(samples[len(samples)-n:])
}
