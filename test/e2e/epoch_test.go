package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// epochs is an etcd's prefix and a database, for processes that share both.
type epochs struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	store  *memory.Store
}

func newEpochs(t *testing.T) *epochs {
	return &epochs{t: t, client: etcdserver.Client(t), prefix: fmt.Sprintf("%s-%x", t.Name(), rand.Uint64()), store: memory.NewStore()}
}

func (e *epochs) locker() *etcd.Locker {
	e.t.Helper()
	l, err := etcd.NewLocker(e.client, &etcd.Config{Prefix: e.prefix, TTL: time.Minute})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, l.Close(context.Background())) })
	return l
}

func (e *epochs) process() *guard.Guard[*memory.Tx] {
	e.t.Helper()
	g, err := guard.New(e.locker(), e.store, nil)
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, g.Close(context.Background())) })
	return g
}

func (e *epochs) set(epoch string) {
	e.t.Helper()
	_, err := e.client.Put(patiently(e.t), e.prefix+"/epoch", epoch)
	require.NoError(e.t, err)
}

func (e *epochs) awaitQueue(resource string, n int64) {
	e.t.Helper()
	ctx := patiently(e.t)
	for {
		resp, err := e.client.Get(ctx, e.prefix+"/locks/"+resource+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(e.t, err, "waiting for %d in the queue", n)
		if resp.Count == n {
			return
		}
	}
}

func nothing(context.Context, *memory.Tx) error { return nil }

// An operator raises the epoch while calls wait. Their keys in the queue are of the old
// epoch, and the database has seen the new one when their turns come.
func TestEpoch_RaisedWhileCallsWaitIsTakenByThem(t *testing.T) {
	t.Parallel()
	e := newEpochs(t)
	ctx := patiently(t)
	held, err := e.locker().Acquire(ctx, "a")
	require.NoError(t, err)
	const waiting = 6
	errs := make(chan error, 2*waiting)
	var calls sync.WaitGroup
	for range waiting {
		do, hold := e.process(), e.process()
		calls.Go(func() { errs <- guard.Do(ctx, do, "a", nothing) })
		calls.Go(func() {
			errs <- guard.Hold(ctx, hold, "a", func(ctx context.Context, h guard.Runner[*memory.Tx]) error { return guard.Do(ctx, h, "a", nothing) })
		})
	}
	e.awaitQueue("a", 1+2*waiting)
	e.set("2")
	require.NoError(t, guard.Do(ctx, e.process(), "b", nothing), "the database sees the new epoch")
	require.NoError(t, held.Release(ctx))
	calls.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}

// Calls don't retry for ever while the lock service's epoch is behind.
func TestEpoch_BehindTheDatabasesIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	e := newEpochs(t)
	ctx := patiently(t)
	e.set("2")
	require.NoError(t, guard.Do(ctx, e.process(), "b", nothing))
	e.prefix += "-another"
	g := e.process()
	for range 2 {
		err := guard.Do(ctx, g, []string{"a", "b"}, nothing)
		requireRejected(t, err, storage.ReasonEpochBehind)
		require.ErrorContains(t, err, "has epoch 1, but the database has seen epoch 2")
	}
}
