package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fencekit/fencekit/internal/testenv"
)

// countedRenewals returns a locker with a session, behind a proxy, that has
// renewed once.
func countedRenewals(t *testing.T) (*Locker, *proxy, func() int) {
	t.Helper()
	p, c := newProxy(t, testenv.SharedEtcd(t).Endpoint()), newCalls()
	l := newTestLocker(t, dial(t, p.endpoint(), c.options()...), fresh(t))
	acquire(t, l, "r")
	_, err := l.leases.KeepAlive(patient(t), l.session.id)
	require.NoError(t, err)
	return l, p, func() int { return c.opened(pb.Lease_LeaseKeepAlive_FullMethodName) }
}

func TestRenewals_AKeptStreamThatDiedIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	l, p, streams := countedRenewals(t)
	p.cut()
	_, err := l.leases.KeepAlive(patient(t), l.session.id)
	require.NoError(t, err)
	require.Equal(t, 2, streams())
}

// The answer to one renewal comes when the next one waits for its own.
func TestRenewals_ALateAnswerIsNotTakenForAnother_F3(t *testing.T) {
	t.Parallel()
	l, p, streams := countedRenewals(t)
	unmute := func() { p.set(func() { p.muted = false }) }
	defer unmute()
	p.set(func() { p.muted = true })
	ctx, cancel := context.WithCancel(patient(t))
	failed := make(chan error, 1)
	go func() {
		_, err := l.leases.KeepAlive(ctx, l.session.id)
		failed <- err
	}()
	cancel()
	require.Error(t, receive(t, failed))
	require.Equal(t, 1, streams(), "nobody needs another one")
	unmute()
	_, err := l.leases.KeepAlive(patient(t), l.session.id)
	require.NoError(t, err)
	require.Equal(t, 2, streams())
}

func TestClose_EndsTheStreamOfRenewals(t *testing.T) {
	t.Parallel()
	l, _, _ := countedRenewals(t)
	kept := l.leases.renewals.kept
	require.NoError(t, kept.ctx.Err())
	require.NoError(t, l.Close(patient(t)))
	require.Error(t, kept.ctx.Err(), "while the client lives on")
}

// A renewal whose stream leads to the silent member is answered by another one.
func TestSilentMember_ARenewalIsAnsweredByAnother_L1(t *testing.T) {
	t.Parallel()
	s := fallSilent(t)
	kept := s.a.leases.renewals.kept
	ctx, cancel := context.WithTimeout(patient(t), 20*time.Second)
	defer cancel()
	_, err := s.a.leases.KeepAlive(ctx, s.a.session.id)
	require.NoError(t, err)
	require.NotSame(t, kept, s.a.leases.renewals.kept)
	require.Error(t, kept.ctx.Err())
}
