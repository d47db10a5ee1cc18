package etcd

import (
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
		"Prefix":         {{Prefix: "a/"}, {Prefix: "/"}, {Prefix: "a\x00"}, {Prefix: "\xff"}},
		"TTL":            {{TTL: -time.Second}, {TTL: time.Millisecond}, {TTL: 1500 * time.Millisecond}},
		"Label":          {{Label: "a\n"}, {Label: "\xff"}, {Label: strings.Repeat("x", 230)}},
		"RequestTimeout": {{RequestTimeout: -1}},
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
