package etcd

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// BenchmarkHeld reports how much memory a process needs for each of 10,000 resources that it
// holds, and how fast it acquires them one after another.
func BenchmarkHeld(b *testing.B) {
	const many = 10000
	l := newTestLocker(b, etcdserver.Client(b), fresh(b))
	release(b, acquire(b, l, "warm"))
	for b.Loop() {
		before := heap()
		held := make([]fence.Lease, many)
		var running sync.WaitGroup
		for from := range 8 {
			running.Go(func() {
				for i := from; i < many; i += 8 {
					var err error
					if held[i], err = l.Acquire(b.Context(), fmt.Sprint("sku/", i)); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		running.Wait()
		b.ReportMetric(float64(heap()-before)/many-16, "B/held") // less the slice's own
		for _, le := range held {
			running.Go(func() { release(b, le) })
		}
		running.Wait()
	}
}

// heap is how much is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
