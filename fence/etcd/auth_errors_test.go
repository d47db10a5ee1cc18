package etcd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

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
