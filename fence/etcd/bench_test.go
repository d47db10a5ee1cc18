package etcd

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
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
// run under the same load, and reports the time of each.
func BenchmarkUncontended(b *testing.B) {
	client := etcdserver.Client(b)
	ours := lockerCycle(newTestLocker(b, client, fresh(b)), "r")
	theirs := newMutexCycle(b, client, keys.NewNonce())
	interleave(b, ours, theirs)
}

// BenchmarkContended is the same with four waiters on one lock: each acquisition takes the
// lock over from another client.
func BenchmarkContended(b *testing.B) {
	client, cfg, name := etcdserver.Client(b), fresh(b), keys.NewNonce()
	var ours, theirs []cycle
	for range 4 {
		ours = append(ours, lockerCycle(newTestLocker(b, client, cfg), "r"))
		theirs = append(theirs, newMutexCycle(b, client, name))
	}
	interleave(b, together(ours), together(theirs))
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

func interleave(b *testing.B, ours, theirs cycle) {
	ctx := b.Context()
	var total [2]time.Duration
	for _, c := range []cycle{ours, theirs} { // sessions are made
		require.NoError(b, c(ctx))
	}
	for b.Loop() {
		for i, c := range []cycle{ours, theirs} {
			began := time.Now()
			if err := c(ctx); err != nil {
				b.Fatal(err)
			}
			total[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(total[0])/float64(b.N)/1e6, "ours-ms/op")
	b.ReportMetric(float64(total[1])/float64(b.N)/1e6, "mutex-ms/op")
	b.ReportMetric(float64(total[1])/float64(total[0]), "mutex/ours")
}
