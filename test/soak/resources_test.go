package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage/memory"
)

// Many resources are used once each, and so expire together; then as many are asked
// for under deadlines that etcd can't keep. Meanwhile other resources are used all the
// time under the same session: it is never lost, and few keys are left (L1).
func TestResources_UsedOnceLeaveNothingAndDisturbNoOthers(t *testing.T) {
	t.Parallel()
	server, err := etcdserver.Start(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	client, err := server.Client(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	locker, err := etcd.NewLocker(client, &etcd.Config{TTL: 30 * time.Second})
	require.NoError(t, err)
	g, err := guard.New(locker, memory.NewStore(), &guard.Config{Observers: []*guard.Observer{{
		LeaseLost: func(loss *fence.LeaseLostError, _ bool) { t.Error(loss) },
	}}})
	require.NoError(t, err)
	use := func(name string) {
		if err := guard.Do(t.Context(), g, name, func(context.Context, *memory.Tx) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	stop := make(chan struct{})
	var steady sync.WaitGroup
	for i := range 4 {
		steady.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond): // a load, nothing waits for it
					use(fmt.Sprintf("steady/%d/%d", i, n%10))
				}
			}
		})
	}

	start := time.Now()
	inParallel(*resourcesFlag, func(i int) { use(fmt.Sprint("once/", i)) })
	used := time.Since(start)
	most := keysUnder(t, client, "fencekit/locks/once")
	for keysUnder(t, client, "fencekit/locks/once") > 0 {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d resources were used within %v, and %d still owned then; the last was free after %v",
		*resourcesFlag, used.Round(time.Millisecond), most, time.Since(start).Round(time.Millisecond))

	var acquired atomic.Int64
	inParallel(*resourcesFlag, func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Microsecond+rand.N(1200*time.Microsecond))
		defer cancel()
		if lease, err := locker.Acquire(ctx, fmt.Sprint("hasty/", i)); err == nil {
			acquired.Add(1)
			_ = lease.Release(t.Context())
		}
	})
	for keysUnder(t, client, "fencekit/locks/hasty") > 0 {
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("%d acquisitions with deadlines of 0.1 to 1.3 ms: %d succeeded, and %d void keys are left",
		*resourcesFlag, acquired.Load(), keysUnder(t, client, "fencekit/void/"))
	close(stop)
	steady.Wait()
	require.LessOrEqual(t, keysUnder(t, client, "fencekit/void/"), int64(1))
	require.NoError(t, g.Close(t.Context()))
	require.NoError(t, locker.Close(t.Context()))
	require.Zero(t, keysUnder(t, client, "fencekit/"))
}

// inParallel calls f for each number below n, from 32 goroutines.
func inParallel(n int, f func(int)) {
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	callers.Wait()
}

func keysUnder(t *testing.T, client *clientv3.Client, prefix string) int64 {
	t.Helper()
	resp, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return resp.Count
}
