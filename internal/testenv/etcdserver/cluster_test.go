package etcdserver

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/process"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func startCluster(t *testing.T) *Cluster {
	t.Helper()
	c, err := StartCluster(testContext(t), 3, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return c
}

func clusterClient(t *testing.T, c *Cluster) *clientv3.Client {
	t.Helper()
	client, err := c.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func leaderAfter(t *testing.T, c *Cluster, old *Member) *Member {
	t.Helper()
	leader, err := c.LeaderAfter(testContext(t), old)
	require.NoError(t, err)
	return leader
}

func TestCluster_ElectsAnotherLeaderWhenOneIsKilledOrPaused(t *testing.T) {
	ctx := testContext(t)
	c := startCluster(t)
	first, err := c.Leader(ctx)
	require.NoError(t, err)
	require.NoError(t, first.Kill())
	second := leaderAfter(t, c, first)
	_, err = clusterClient(t, c).Put(ctx, "k", "v")
	require.NoError(t, err)
	require.NoError(t, first.Restart(ctx))
	require.NoError(t, second.Pause())
	third := leaderAfter(t, c, second)
	got, err := etcdClient(t, third.Server).Get(ctx, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Count)
	require.NoError(t, second.Resume())
}

// An isolated leader keeps its clients, and no longer leads.
func TestMember_IsIsolatedWhileItsClientsReachIt(t *testing.T) {
	ctx := testContext(t)
	c := startCluster(t)
	old, err := c.Leader(ctx)
	require.NoError(t, err)
	old.Isolate()
	old.Isolate()
	leader := leaderAfter(t, c, old)
	_, err = etcdClient(t, leader.Server).Put(ctx, "k", "new")
	require.NoError(t, err)

	client := etcdClient(t, old.Server)
	got, err := client.Get(ctx, "k", clientv3.WithSerializable())
	require.NoError(t, err, "it answers what needs no other member")
	require.Zero(t, got.Count, "and has not heard of the others")
	lonely, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = client.Put(lonely, "k", "old")
	require.Error(t, err)

	old.Rejoin()
	old.Rejoin()
	require.NoError(t, process.Poll(ctx, func(ctx context.Context) error {
		got, err = client.Get(ctx, "k")
		return err
	}))
	require.Equal(t, "new", string(got.Kvs[0].Value))
}

// Only a client that shows a certificate of the same authority gets in.
func TestCertificates_KeepOutClientsOfAnotherAuthority(t *testing.T) {
	ctx := testContext(t)
	certificates, err := NewCertificates(t.TempDir())
	require.NoError(t, err)
	e := startEtcd(t, &Config{Certificates: certificates})
	require.Regexp(t, "^https://", e.Endpoint())
	_, err = etcdClient(t, e).Put(ctx, "k", "v")
	require.NoError(t, err)

	others, err := NewCertificates(t.TempDir())
	require.NoError(t, err)
	stranger, err := others.Client("stranger")
	require.NoError(t, err)
	for _, shown := range [][]tls.Certificate{nil, stranger.Certificates} {
		cfg, err := certificates.Client("any")
		require.NoError(t, err)
		cfg.Certificates = shown
		conn, err := tls.Dial("tcp4", strings.TrimPrefix(e.Endpoint(), "https://"), cfg)
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1)) // the server's verdict
		require.ErrorContains(t, err, "tls: ")
		require.NoError(t, conn.Close())
	}
}
