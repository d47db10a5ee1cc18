package etcd

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// The holder is cut off from etcd: its locks end by its own deadline, before another holder
// gets them, and the error says why.
func TestPartition_WhatIsKeptEndsByItsDeadline(t *testing.T) {
	t.Parallel()
	e, cfg := etcdserver.Shared(t), fresh(t)
	p := newProxy(t, e.Endpoint())
	b := newTestLocker(t, dial(t, e.Endpoint()), cfg) // waits for as long as the test takes
	cfg.TTL, cfg.RequestTimeout = 6*time.Second, 2*time.Second
	a := newTestLocker(t, dial(t, p.endpoint()), cfg)
	held := acquireAtLast(t, a, "r")
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, b.cluster.Client, a.cluster.Keys.Queue("r"), 2)
	p.set(func() { p.down = true })
	require.Equal(t, fence.LossDeadline, lossOf(t, held))
	requireReason(t, context.Cause(held.Context()), fence.Unreachable)
	require.ErrorContains(t, context.Cause(held.Context()), p.endpoint())
	got := <-waiting
	require.NoError(t, got.err)
	require.Greater(t, got.lease.Grant().Token, held.Grant().Token)
	_, err := a.TryAcquire(patient(t), "r")
	requireReason(t, err, fence.Unreachable)
	p.set(func() { p.down = false })
	persistently(t, func(ctx context.Context) error {
		_, err := a.TryAcquire(ctx, "r")
		if errors.Is(err, fence.ErrLocked) {
			return nil // it works again by itself
		}
		return err
	})
}

func TestTLS_LocksWorkWithClientCertificates(t *testing.T) {
	t.Parallel()
	certificates, err := etcdserver.NewCertificates(t.TempDir())
	require.NoError(t, err)
	e := startEtcd(t, &etcdserver.Config{Certificates: certificates})
	mine, err := certificates.Client("a locker")
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}, Logger: zap.NewNop(), TLS: mine})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	cfg := fresh(t)
	a, b := newTestLocker(t, client, cfg), newTestLocker(t, client, cfg)
	held := acquire(t, a, "r")
	waiting := acquiring(patient(t), b, "r")
	awaitKeys(t, client, a.cluster.Keys.Queue("r"), 2)
	require.True(t, renews(t, a))
	release(t, held)
	require.NoError(t, (<-waiting).err)
}
