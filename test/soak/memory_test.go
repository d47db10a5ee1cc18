package soak_test

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// What the heap may grow by from the first third of a run to its last: what clients keep for
// reconnecting varies with what was last done to them.
const (
	growth    = 1.25
	heapSlack = 4 << 20
)

// heapWatch measures the heap in use after a collection, at even distances.
type heapWatch []uint64

// watch measures until stop is closed.
func (h *heapWatch) watch(every time.Duration, stop <-chan struct{}) {
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
		*h = append(*h, m.HeapInuse)
	}
}

func (h heapWatch) String() string {
	then, now := h.thirds()
	return fmt.Sprintf("median of the first and the last third of %d samples: heap in use %.1f and %.1f MiB",
		len(h), float64(then)/(1<<20), float64(now)/(1<<20))
}

func (h heapWatch) grows() bool {
	then, now := h.thirds()
	return float64(now) > growth*float64(then)+heapSlack
}

// thirds returns the medians of the first and of the last third.
func (h heapWatch) thirds() (first, last uint64) {
	n := len(h) / 3
	median := func(part []uint64) uint64 { return slices.Sorted(slices.Values(part))[len(part)/2] }
	return median(h[:n]), median(h[len(h)-n:])
}
