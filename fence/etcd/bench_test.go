package etcd

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// cycle acquires and releases a lock.
type cycle func(ctx context.Context) error

func lockerCycle(l *Locker, resource string) cycle {
	return func(ctx context.Context) error {
		le, err := l.Acquire(ctx, resource)
		if err != nil {
			return err
		}
		return le.Release(ctx)
	}
}

func newMutexCycle(b *testing.B, client *clientv3.Client, name string) cycle {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	require.NoError(b, err)
	b.Cleanup(func() { _ = session.Close() })
	m := concurrency.NewMutex(session, name)
	return func(ctx context.Context) error {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		return m.Unlock(ctx)
	}
}

// BenchmarkUncontended alternates between this package and etcd's own mutex, so that both
// run under the same load, and reports the time of each. Every goroutine has a lock of its
// own.
func BenchmarkUncontended(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprint(goroutines), func(b *testing.B) {
			client := etcdserver.Client(b)
			l, name := newTestLocker(b, client, fresh(b)), rand.Text()
			var ours, theirs []cycle
			for i := range goroutines {
				ours = append(ours, lockerCycle(l, fmt.Sprint("sku/", i)))
				theirs = append(theirs, newMutexCycle(b, client, fmt.Sprint(name, "/", i)))
			}
			interleave(b, together(ours), together(theirs))
		})
	}
}

// BenchmarkContended is the same with one lock for all, and 4 clients.
func BenchmarkContended(b *testing.B) {
	for _, waiters := range []int{4, 8, 64} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			endpoint, cfg, name := etcdserver.Shared(b).Endpoint(), fresh(b), rand.Text()
			var ours, theirs []cycle
			for range 4 {
				client := dial(b, endpoint)
				l := newTestLocker(b, client, cfg)
				for range waiters / 4 {
					ours = append(ours, lockerCycle(l, "r"))
					theirs = append(theirs, newMutexCycle(b, client, name))
				}
			}
			interleave(b, together(ours), together(theirs))
		})
	}
}

// together runs all cycles at once, five times each.
func together(cycles []cycle) cycle {
	return func(ctx context.Context) error {
		errs := make(chan error, len(cycles))
		var running sync.WaitGroup
		for _, c := range cycles {
			running.Go(func() {
				for range 5 {
					if err := c(ctx); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		running.Wait()
		close(errs)
		return <-errs
	}
}

// interleave reports the median ratio of the rounds, with the smallest and the largest.
func interleave(b *testing.B, ours, theirs cycle) {
	ctx := b.Context()
	var total [2]time.Duration
	var ratios []float64
	for _, c := range []cycle{ours, theirs} { // sessions are made
		require.NoError(b, c(ctx))
	}
	for b.Loop() {
		var took [2]time.Duration
		for i, c := range []cycle{ours, theirs} {
			began := time.Now()
			if err := c(ctx); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(began)
			total[i] += took[i]
		}
		ratios = append(ratios, float64(took[1])/float64(took[0]))
	}
	slices.Sort(ratios)
	b.ReportMetric(float64(total[0])/float64(b.N)/1e6, "ours-ms/op")
	b.ReportMetric(float64(total[1])/float64(b.N)/1e6, "mutex-ms/op")
	b.ReportMetric(ratios[len(ratios)/2], "mutex/ours")
	b.ReportMetric(ratios[0], "min")
	b.ReportMetric(ratios[len(ratios)-1], "max")
}

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
