package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage/memory"
)

// With raw names "a" waits for the holder of "a/b", who can't see that. So the guard
// neither keeps "a/b" between calls, nor goes on for long while it is used all the time.
func TestMutexKeys_UseOfALongerNameDoesNotStarveTheShorter(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("shop-%x", rand.Uint64())
	newLocker := func() *etcd.Locker {
		l, err := etcd.NewLocker(etcdserver.Client(t), &etcd.Config{MutexKeys: true, TTL: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
		return l
	}
	g, err := guard.New(newLocker(), memory.NewStore(), &guard.Config{KeepFor: time.Hour})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(context.Background())) }()
	ctx := patiently(t)
	use := func() error { return guard.Do(ctx, g, name+"/b", nothing) }
	require.NoError(t, use())
	shorter := newLocker()
	lease, err := shorter.Acquire(ctx, name)
	require.NoError(t, err, "no call uses the longer name")
	require.NoError(t, lease.Release(ctx))

	stop, users := make(chan struct{}), make(chan error, 3)
	for range cap(users) {
		go func() {
			for {
				select {
				case <-stop:
					users <- nil
					return
				default:
				}
				if err := use(); err != nil {
					users <- err
					return
				}
			}
		}()
	}
	lease, err = shorter.Acquire(ctx, name)
	require.NoError(t, err, "the longer name is used all the time")
	close(stop)
	for range cap(users) {
		require.NoError(t, <-users)
	}
	require.NoError(t, lease.Release(ctx))
}
