package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestNewLocker_RejectsBadConfig(t *testing.T) {
	client := etcdserver.Client(t)
	for field, cfgs := range map[string][]Config{
		"Prefix": {{Prefix: "a/"}, {Prefix: "/"}, {Prefix: "a\x00"}, {Prefix: "\xff"}},
		"TTL":    {{TTL: -time.Second}, {TTL: time.Millisecond}, {TTL: 1500 * time.Millisecond}},
		"Label":  {{Label: "a\n"}, {Label: "\xff"}, {Label: strings.Repeat("x", 230)}},
	} {
		for _, cfg := range cfgs {
			_, err := NewLocker(client, &cfg)
			require.ErrorIs(t, err, fence.ErrInvalid, "%+v", cfg)
			require.ErrorContains(t, err, ": etcd.Config."+field+" ")
		}
	}
}

func TestNewLocker_RejectsUnusableClients(t *testing.T) {
	_, err := NewLocker(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)

	closed := dial(t, etcdserver.Shared(t).Endpoint())
	require.NoError(t, closed.Close())
	_, err = NewLocker(closed, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)
	require.ErrorContains(t, err, "closed")

	for endpoint, says := range map[string]string{
		"":                            "has an empty endpoint",
		"http://a:2379,http://b:2379": `has the endpoint "http://a:2379,http://b:2379": give each member's as a string of its own`,
		" http://a:2379":              `has the endpoint " http://a:2379" with a space in it`,
	} {
		_, err = NewLocker(dial(t, endpoint), nil)
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, says)
	}

	_, err = NewLocker(clientv3.NewCtxClient(t.Context()), nil)
	require.ErrorIs(t, err, fence.ErrInvalid)

	moved := etcdserver.Client(t)
	moved.KV = namespace.NewKV(moved.KV, "elsewhere/")
	_, err = NewLocker(moved, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)
	require.ErrorContains(t, err, "Config.Prefix")

	watching := etcdserver.Client(t)
	watching.Watcher = namespace.NewWatcher(watching.Watcher, "elsewhere/")
	_, err = NewLocker(watching, nil)
	require.ErrorIs(t, err, fence.ErrInvalid)
}

func TestCheck_SaysThatEtcdTakesTooFewOperations(t *testing.T) {
	t.Parallel()
	for flag, enough := range map[string]bool{"--max-txn-ops=2": false, "--max-txn-ops=3": true} {
		l := newTestLocker(t, dial(t, startEtcd(t, &etcdserver.Config{ExtraFlags: []string{flag}}).Endpoint()), fresh(t))
		if enough {
			require.NoError(t, l.Check(patient(t)))
			_, err := l.TryAcquire(patient(t), "r")
			require.NoError(t, err)
			continue
		}
		requireReason(t, l.Check(patient(t)), fence.Limited)
		_, err := l.TryAcquire(patient(t), "r")
		requireReason(t, err, fence.Limited)
	}
}

// A probe that is called every second must not fill etcd's history, nor make a lease.
func TestCheck_SucceedsAndWritesNothing(t *testing.T) {
	t.Parallel()
	e := ownEtcd(t)
	admin := dial(t, e.Endpoint())
	before, err := admin.Get(patient(t), "any")
	require.NoError(t, err)
	for _, mutexKeys := range []bool{false, true} {
		cfg := fresh(t)
		cfg.MutexKeys = mutexKeys
		l := newTestLocker(t, dial(t, e.Endpoint()), cfg)
		require.NoError(t, l.Check(patient(t)))
		require.NoError(t, l.Check(patient(t)))
	}
	after, err := admin.Get(patient(t), "any")
	require.NoError(t, err)
	require.Equal(t, before.Header.Revision, after.Header.Revision)
	leases, err := admin.Leases(patient(t))
	require.NoError(t, err)
	require.Empty(t, leases.Leases)
}

func TestCheck_FailsWithoutARightThatAnAcquisitionNeeds(t *testing.T) {
	t.Parallel()
	for _, r := range rights {
		t.Run(r.key, func(t *testing.T) {
			t.Parallel()
			cfg := fresh(t)
			a := startAuthEtcd(t, cfg.Prefix)
			l := newTestLocker(t, a.as(t, "app", "app"), cfg)
			require.NoError(t, l.Check(patient(t)))
			key, end := cfg.Prefix+r.key, ""
			if r.prefix {
				end = clientv3.GetPrefixRangeEnd(key)
			}
			_, err := a.root.RoleRevokePermission(patient(t), "app", key, end)
			require.NoError(t, err)
			requireNamesRights(t, l.Check(patient(t)), l)
			for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.Acquire, l.TryAcquire} {
				_, err = acquire(patient(t), "r")
				requireNamesRights(t, err, l)
			}
		})
	}
}
