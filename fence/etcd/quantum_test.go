package etcd

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// A process with more calls than its quantum passes on after as many as had queued when
// another process came.
func TestQuantum_AWaiterElsewhereGetsItsTurnAfterOneQuantum(t *testing.T) {
	t.Parallel()
	const quantum = 32
	client, cfg := etcdserver.Client(t), fresh(t)
	busy, other := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, busy, "r")
	var served atomic.Int64
	var running []<-chan result
	for range 2 * quantum {
		done := make(chan result, 1)
		running = append(running, done)
		go func() {
			le, err := busy.Acquire(patient(t), "r")
			if err == nil {
				served.Add(1)
				err = le.Release(patient(t))
			}
			done <- result{le, err}
		}()
	}
	queue := busy.cluster.Keys.Queue("r")
	awaitKeys(t, client, queue, quantum)
	waiting := acquiring(patient(t), other, "r")
	awaitKeys(t, client, queue, quantum+1)
	release(t, held)
	got := <-waiting
	require.NoError(t, got.err)
	require.EqualValues(t, quantum-1, served.Load(), "those that had a key before")
	release(t, got.lease)
	for _, r := range running {
		require.NoError(t, (<-r).err)
	}
}
