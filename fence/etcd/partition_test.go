package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// A waiter whose caller has given up leaves its key for no longer than the time to live,
// also where requests still arrive, which could renew the lease, and only the answers are
// lost.
func TestPartition_ACancelledWaiterLeavesNoKey(t *testing.T) {
	t.Parallel()
	for name, inject := range map[string]func(*proxy){
		"nothing passes":   func(p *proxy) { p.down = true },
		"answers are lost": func(p *proxy) { p.muted = true },
	} {
		for _, holds := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, holds %v", name, holds), func(t *testing.T) {
				t.Parallel()
				e, cfg := etcdserver.Shared(t), fresh(t)
				p := newProxy(t, e.Endpoint())
				a := newTestLocker(t, dial(t, e.Endpoint()), cfg) // holds for as long as the test takes
				cfg.TTL, cfg.RequestTimeout = 6*time.Second, 2*time.Second
				b := newTestLocker(t, dial(t, p.endpoint()), cfg)
				held, kept := acquire(t, a, "r"), acquireAtLast(t, b, "kept")
				if !holds {
					release(t, kept)
				}
				ctx, cancel := context.WithCancel(patient(t))
				waiting := acquiring(ctx, b, "r")
				awaitKeys(t, a.cluster.Client, a.cluster.Keys.Queue("r"), 2)
				p.set(func() { inject(p) })
				cancel()
				require.Error(t, (<-waiting).err)
				kvs := awaitKeys(t, a.cluster.Client, a.cluster.Keys.Queue("r"), 1)
				require.Equal(t, keyOf(held), string(kvs[0].Key))
				require.NoError(t, context.Cause(held.Context()))
			})
		}
	}
}

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

	// Without a certificate, the error says what is missing.
	mine = mine.Clone()
	mine.Certificates = nil
	recommended := ClientConfig(e.Endpoint()) // it reconnects within two seconds
	recommended.TLS = mine
	stranger, err := clientv3.New(recommended)
	require.NoError(t, err)
	t.Cleanup(func() { _ = stranger.Close() })
	cfg.RequestTimeout = time.Second
	l := newTestLocker(t, stranger, cfg)
	says := func() bool {
		_, err := l.Acquire(patient(t), "r")
		requireReason(t, err, fence.Unreachable)
		return strings.Contains(err.Error(), "certificate")
	}
	for limit := morePatient(t); !says(); { // gRPC may be reconnecting, or have read the closed connection before the reason
		require.NoError(t, limit.Err(), "the error never says why")
	}
}
