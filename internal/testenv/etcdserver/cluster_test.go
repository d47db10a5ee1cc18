package etcdserver

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
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

func rootOf(m *Member) string {
	if docker, ok := m.controller.(*process.Container); ok {
		return filepath.Join(os.TempDir(), docker.Name())
	}
	return m.controller.(*process.Server).Dir().Path("")
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
	require.NoError(t, old.Isolate())
	require.NoError(t, old.Isolate())
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

	require.NoError(t, old.Rejoin())
	require.NoError(t, old.Rejoin())
	require.NoError(t, process.Poll(ctx, func(ctx context.Context) error {
		got, err = client.Get(ctx, "k")
		return err
	}))
	require.Equal(t, "new", string(got.Kvs[0].Value))
}

func TestCluster_StopIsForGood(t *testing.T) {
	ctx := testContext(t)
	c := startCluster(t)
	m := c.Members()[0]
	require.NoError(t, m.Pause()) // Stop also ends what is paused
	require.NoError(t, c.Stop(ctx))
	require.NoError(t, c.Stop(ctx))
	require.Error(t, process.Listening(strings.TrimPrefix(m.Endpoint(), "http://"))(ctx))
	require.NoDirExists(t, rootOf(m))
	require.NoError(t, m.Kill())
	require.ErrorIs(t, m.Restart(ctx), process.ErrStopped)
}

func TestMember_StaysIsolatedOverARestart(t *testing.T) {
	ctx := testContext(t)
	c := startCluster(t)
	m := c.Members()[0]
	require.NoError(t, m.Kill())
	require.NoError(t, m.Isolate())
	short, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	require.Error(t, m.Restart(short))
	require.NoError(t, m.Rejoin())
	require.NoError(t, m.Restart(ctx))
}

func TestCluster_SpeaksTLS(t *testing.T) {
	ctx := testContext(t)
	certificates, err := NewCertificates(t.TempDir())
	require.NoError(t, err)
	c, err := StartCluster(ctx, 1, &Config{Certificates: certificates})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	require.Regexp(t, "^https://", c.Endpoints()[0])
	_, err = clusterClient(t, c).Put(ctx, "k", "v")
	require.NoError(t, err)
}

func TestStartCluster_SaysWhatIsWrong(t *testing.T) {
	_, err := StartCluster(testContext(t), 0, nil)
	require.ErrorContains(t, err, "at least one member")
	_, err = StartCluster(testContext(t), 3, &Config{Dir: t.TempDir()})
	require.ErrorContains(t, err, "directories of its own")
	_, err = StartCluster(testContext(t), 2, &Config{ExtraFlags: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "no-such-flag")
	t.Setenv(clusterVar, "moon")
	_, err = StartCluster(testContext(t), 2, nil)
	require.ErrorContains(t, err, clusterVar+"=moon")
	t.Setenv(clusterVar, "docker")
	t.Setenv("DOCKER_HOST", "unix:///nowhere")
	_, err = StartCluster(testContext(t), 2, nil)
	require.ErrorContains(t, err, "daemon does not answer")
}

func TestServer_RestoreBringsBackASnapshot(t *testing.T) {
	ctx := testContext(t)
	e := startEtcd(t, nil)
	client, file := etcdClient(t, e), filepath.Join(t.TempDir(), "snapshot")
	put, err := client.Put(ctx, "k", "before")
	require.NoError(t, err)
	require.NoError(t, e.Snapshot(ctx, file))
	for range 5 {
		_, err = client.Put(ctx, "k", "after")
		require.NoError(t, err)
	}
	for _, bump := range []uint64{0, 1000} {
		require.NoError(t, e.Restore(ctx, file, bump))
		got, err := client.Get(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, "before", string(got.Kvs[0].Value))
		require.Equal(t, put.Header.ClusterId, got.Header.ClusterId)
		require.EqualValues(t, put.Header.Revision+int64(bump), got.Header.Revision)
	}
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
