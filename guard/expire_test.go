package guard_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

// Resources that were used once, all at about the same time, expire together. Their
// releases must not crowd out renewals, so few of them are under way at a time, and
// what waits for its release can still be used, or passed on to another process.
func TestKeepFor_ThousandsThatExpireTogetherAreReleasedAFewAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		locker := &stalledLocker{Locker: w.locks.NewLocker("a"), stalled: make(chan struct{})}
		g := w.processOn(locker, nil)
		goOn := sync.OnceFunc(func() { close(locker.stalled) })
		defer goOn()
		const many = 3000
		var calls sync.WaitGroup
		for i := range many {
			calls.Go(func() { w.do(g, fmt.Sprint("sku/", i)) })
		}
		calls.Wait()
		require.Zero(t, locker.releasing.Load())

		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 8, locker.releasing.Load())
		var kept []string
		for i := range many {
			if name := fmt.Sprint("sku/", i); w.locks.Holder(name) != (fence.Grant{}) && !locker.begun(name) {
				kept = append(kept, name)
			}
		}
		require.Len(t, kept, many-8)
		w.do(g, kept[0])
		require.Equal(t, many, w.locks.Grants(), "it was still owned")
		require.True(t, w.locks.Contend(kept[1]))
		synctest.Wait()
		require.True(t, locker.begun(kept[1]), "another process waits for it, so it is released at once")

		goOn()
		synctest.Wait()
		require.NotZero(t, w.locks.Holder(kept[0]), "it was used a moment ago")
		require.Equal(t, 1, guard.Lines(g))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Zero(t, guard.Lines(g))
	})
}

// do runs an operation that changes nothing.
func (w *world) do(g *guard.Guard[*memory.Tx], resource string) {
	w.Helper()
	if err := guard.Do(context.Background(), g, resource, func(context.Context, *memory.Tx) error { return nil }); err != nil {
		w.Error(err)
	}
}

// stalledLocker releases nothing while it is stalled.
type stalledLocker struct {
	fence.Locker
	stalled   chan struct{} // until it is closed
	releasing atomic.Int64
	released  sync.Map // by resource, those whose release has begun
}

func (l *stalledLocker) begun(resource string) bool {
	_, ok := l.released.Load(resource)
	return ok
}

func (l *stalledLocker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	lease, err := l.Locker.Acquire(ctx, resource)
	return stalledLease{lease, l}, err
}

type stalledLease struct {
	fence.Lease
	locker *stalledLocker
}

func (l stalledLease) Release(ctx context.Context) error {
	l.locker.released.Store(l.Grant().Resource, true)
	l.locker.releasing.Add(1)
	defer l.locker.releasing.Add(-1)
	<-l.locker.stalled
	return l.Lease.Release(context.WithoutCancel(ctx))
}
