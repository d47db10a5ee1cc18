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
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func TestNew_RejectsBadConfig(t *testing.T) {
	client := etcdserver.Client(t)
	for field, cfgs := range map[string][]Config{
		"Prefix": {{Prefix: "a/"}, {Prefix: "/"}, {Prefix: "a\x00"}, {Prefix: "\xff"}},
		"TTL":    {{TTL: -time.Second}, {TTL: time.Millisecond}, {TTL: 1500 * time.Millisecond}},
		"Label":  {{Label: "a\n"}, {Label: "\xff"}, {Label: strings.Repeat("x", fence.MaxHolderLen)}},
	} {
		for _, cfg := range cfgs {
			_, err := New(client, &cfg)
			require.ErrorIs(t, err, fence.ErrInvalid, "%+v", cfg)
			require.ErrorContains(t, err, ": etcd.Config."+field+" ")
		}
	}
}

func TestNew_RejectsUnusableClients(t *testing.T) {
	closed, moved, watching := dial(t, etcdserver.Shared(t).Endpoint()), etcdserver.Client(t), etcdserver.Client(t)
	require.NoError(t, closed.Close())
	moved.KV = namespace.NewKV(moved.KV, "elsewhere/")
	watching.Watcher = namespace.NewWatcher(watching.Watcher, "elsewhere/")
	for says, client := range map[string]*clientv3.Client{
		"is nil":                              nil,
		"is closed":                           closed,
		"has no connection of its own":        clientv3.NewCtxClient(t.Context()),
		"has an empty endpoint":               dial(t, ""),
		"give each member's as a string":      dial(t, "http://a:2379,http://b:2379"),
		`" http://a:2379" with a space in it`: dial(t, " http://a:2379"),
		"KV or Watcher replaced":              moved,
		"set Config.Prefix instead":           watching,
	} {
		_, err := New(client, nil)
		require.ErrorIs(t, err, fence.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

func TestCheck_SaysThatEtcdTakesTooFewOperations(t *testing.T) {
	t.Parallel()
	for flag, enough := range map[string]bool{"--max-txn-ops=2": false, "--max-txn-ops=3": true} {
		l := newTestLocker(t, dial(t, startEtcd(t, &etcdserver.Config{ExtraFlags: []string{flag}}).Endpoint()), fresh(t))
		_, err := l.TryAcquire(patient(t), "r")
		for _, err := range []error{err, l.Check(patient(t))} {
			if enough {
				require.NoError(t, err)
			} else {
				requireReason(t, err, fence.Limited)
			}
		}
	}
}

func TestCheck_FailsWithoutARightThatAnAcquisitionNeeds(t *testing.T) {
	t.Parallel()
	for _, r := range rights {
		t.Run(r.key, func(t *testing.T) {
			t.Parallel()
			cfg := fresh(t)
			a := startAuthEtcd(t, cfg.Prefix)
			l := newTestLocker(t, a.as(t, "app"), cfg)
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
