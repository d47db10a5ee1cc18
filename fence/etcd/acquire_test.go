package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestAcquire_TokensIncrease_F1(t *testing.T) {
	client := testenv.EtcdClient(t)
	cfg := fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	last := fence.Token(0)
	for i := range 10 {
		l := a
		if i%2 == 1 {
			l = b
		}
		le := acquire(t, l, "sku/1")
		require.Greater(t, le.Grant().Token, last)
		require.NoError(t, le.Grant().Validate())
		require.NoError(t, le.Context().Err())
		last = le.Grant().Token
		release(t, le)
		require.ErrorIs(t, context.Cause(le.Context()), fence.ErrReleased)
	}
}

func TestAcquire_WaitsForTheHolder_F2(t *testing.T) {
	client := testenv.EtcdClient(t)
	cfg := fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	got := make(chan fence.Lease, 1)
	go func() {
		le, err := b.Acquire(patient(t), "r")
		if err == nil {
			got <- le
		}
	}()
	contended := make(chan struct{})
	held.AfterContended(func() { close(contended) })
	<-contended
	require.Empty(t, got)
	release(t, held)
	next := <-got
	require.Greater(t, next.Grant().Token, held.Grant().Token)
	release(t, next)
}
