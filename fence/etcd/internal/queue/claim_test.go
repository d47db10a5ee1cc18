package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func names(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("sku/%03d", i))
	}
	return all
}

func TestTryAcquireAll_TakesOneTxn(t *testing.T) {
	t.Parallel()
	count := newTxns()
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(count.intercept))
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	release(t, acquire(t, q, "warm"))
	count.reset()
	held, err := q.TryAcquireAll(patient(t), names(100))
	require.NoError(t, err)
	require.Len(t, held, 100)
	require.Equal(t, 1, count.reset())
	for i, kv := range awaitKeys(t, client, q.cluster.Keys.Prefix+"/locks/", 100) {
		require.EqualValues(t, kv.CreateRevision, held[i].Grant().Token)
	}
	for _, le := range held {
		release(t, le)
	}
}

// The traps are to queue at several resources at once, and to take what is free behind one
// that is taken: either way two calls can wait for each other.
func TestTryAcquireAll_TakesNothingBehindWhatIsTaken(t *testing.T) {
	t.Parallel()
	client, space := etcdserver.Client(t), fresh(t)
	a, b := newQueues(t, client, space, etcdtest.Patience), newQueues(t, client, space, etcdtest.Patience)
	taken := acquire(t, a, "sku/002")
	held, err := b.TryAcquireAll(patient(t), names(5))
	require.NoError(t, err)
	require.Len(t, held, 2)
	keys := awaitKeys(t, client, space.Prefix+"/locks/", 3)
	require.Equal(t, taken.Key(), string(keys[0].Key), "no queue but those of the first two has got a key")
	again, err := b.TryAcquireAll(patient(t), names(5))
	require.NoError(t, err)
	require.Empty(t, again, "this process has the first one")
	for _, le := range held {
		release(t, le)
	}
	release(t, taken)
}

func TestTryAcquireAll_InDoubtLeavesNothing(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.IsAcquire)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept))
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	kept := acquire(t, q, "kept")
	late.Arm()
	failed := make(chan error, 1)
	go func() {
		_, err := q.TryAcquireAll(patient(t), names(3))
		failed <- err
	}()
	deliver := late.Kept(t)
	require.ErrorIs(t, etcdtest.Receive(t, failed), fence.ErrUnavailable)
	awaitKeys(t, client, q.cluster.Keys.Prefix+"/void/", 1)
	require.False(t, deliver().Succeeded)
	awaitKeys(t, client, q.cluster.Keys.Queue("sku/000"), 0)
	require.NoError(t, kept.Context().Err())
	release(t, acquire(t, q, "sku/000"))
}
