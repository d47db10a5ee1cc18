package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
)

func requireDenied(t testing.TB, l *Locker, resource string) {
	t.Helper()
	for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.Acquire, l.TryAcquire, l.TryAcquire} {
		_, err := acquire(patient(t), resource)
		require.ErrorIs(t, err, fence.ErrUnavailable)
		requireNamesRights(t, err, l)
	}
}

func requireNamesRights(t testing.TB, err error, l *Locker) {
	t.Helper()
	requireReason(t, err, fence.Denied)
	for _, r := range rights {
		require.ErrorContains(t, err, l.cluster.Keys.Prefix+r.key)
	}
}

func TestAuth_AMissingRightIsNamed(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	e := startAuthEtcd(t, cfg.Prefix)
	requireDenied(t, newTestLocker(t, e.as(t, "nobody", "nobody"), cfg), "r")
	elsewhere := *cfg
	elsewhere.Prefix = "elsewhere"
	requireDenied(t, newTestLocker(t, e.as(t, "app", "app"), &elsewhere), "r")
}

func TestAuth_NeitherPasswordNorCertificateIsNamed(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	e := startAuthEtcd(t, cfg.Prefix)
	stranger := newTestLocker(t, dial(t, e.Endpoint()), cfg)
	changed := newTestLocker(t, e.as(t, "app", "app"), cfg)
	release(t, acquire(t, changed, "r"))
	_, err := e.root.UserChangePassword(patient(t), "app", "another")
	require.NoError(t, err)
	for _, l := range []*Locker{stranger, changed} {
		for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.Acquire, l.TryAcquire, l.TryAcquire} {
			_, err := acquire(patient(t), "r")
			require.ErrorIs(t, err, fence.ErrUnavailable)
			requireReason(t, err, fence.Denied)
			require.ErrorContains(t, err, "Username and Password")
		}
	}
}

// The rights are withdrawn while the lock is held. Renewals need the right to
// write every key of the lease.
func TestAuth_AWithdrawnRightIsNamedByTheLoss(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.TTL = 8 * time.Second
	e := startAuthEtcd(t, cfg.Prefix)
	l := newTestLocker(t, e.as(t, "app", "app"), cfg)
	le := acquire(t, l, "r")
	key := cfg.Prefix + "/locks/"
	_, err := e.root.RoleRevokePermission(patient(t), "app", key, clientv3.GetPrefixRangeEnd(key))
	require.NoError(t, err)
	require.Equal(t, fence.LossDeadline, lossOf(t, le))
	requireNamesRights(t, context.Cause(le.Context()), l)
}

// Without the right to revoke, retrying until the time to live is over gains nothing.
func TestAuth_CloseGivesUpOnWhatItHasNoRightTo(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	cfg.TTL = 20 * time.Minute
	e := startAuthEtcd(t, cfg.Prefix)
	l := newTestLocker(t, e.as(t, "app", "app"), cfg)
	le := acquire(t, l, "r")
	key := cfg.Prefix + "/locks/"
	_, err := e.root.RoleRevokePermission(patient(t), "app", key, clientv3.GetPrefixRangeEnd(key))
	require.NoError(t, err)
	err = l.Close(patient(t))
	require.ErrorIs(t, err, fence.ErrUnavailable)
	requireNamesRights(t, err, l)
	require.Equal(t, fence.LossClosed, lossOf(t, le))
}
