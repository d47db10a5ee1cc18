package etcdserver

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv/child"
	"github.com/fencekit/fencekit/internal/testenv/process"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// testContext ends a test that hangs; no machine needs that long.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

func startEtcd(t *testing.T, cfg *Config) *Server {
	t.Helper()
	e, err := Start(testContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func etcdClient(t *testing.T, e *Server) *clientv3.Client {
	t.Helper()
	client, err := e.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestServer_KeepsDataAndEndpointOverKillAndRestart(t *testing.T) {
	ctx := testContext(t)
	e := startEtcd(t, nil)
	client, endpoint := etcdClient(t, e), e.Endpoint()
	_, err := client.Put(ctx, "k", "v")
	require.NoError(t, err)

	require.NoError(t, e.Kill())
	require.NoError(t, e.Kill())
	require.Error(t, process.Listening(ctx, e.Address(0)))
	require.NoError(t, e.Restart(ctx))
	require.NoError(t, e.Restart(ctx)) // of one that runs

	require.Equal(t, endpoint, e.Endpoint())
	got, err := client.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Kvs[0].Value))
}

func TestServer_StopIsForGood(t *testing.T) {
	ctx := testContext(t)
	e := startEtcd(t, &Config{ExtraFlags: []string{"--log-level=info"}})
	root := e.Dir().Path("")
	log, err := os.Open(e.Dir().Path("etcd-node.log"))
	require.NoError(t, err)
	defer log.Close()
	require.DirExists(t, root)
	require.NoError(t, e.Pause()) // Stop also ends what is paused
	require.NoError(t, e.Stop(ctx))
	require.NoError(t, e.Stop(ctx))
	require.NoDirExists(t, root)
	text, err := io.ReadAll(log) // of a file that is gone
	require.NoError(t, err)
	require.Contains(t, string(text), "received signal; shutting down", "not by force")
	require.ErrorIs(t, e.Restart(ctx), process.ErrStopped)
	require.ErrorIs(t, e.Pause(), child.ErrNotRunning)
	require.ErrorIs(t, e.Resume(), child.ErrNotRunning)
}

// While it is paused it accepts connections and answers nothing.
func TestServer_PauseIsSilent(t *testing.T) {
	ctx := testContext(t)
	e := startEtcd(t, nil)
	require.NoError(t, e.Pause())
	require.NoError(t, e.EachProcess(func(pid int) error {
		stopped, err := pause.Stopped(pid)
		require.True(t, stopped)
		return err
	}))
	require.NoError(t, process.Listening(ctx, e.Address(0)))
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := etcdClient(t, e).Get(short, "k")
	require.Error(t, err)
	require.NoError(t, e.Resume())
	require.NoError(t, e.ping(ctx))
}

func TestStart_SaysWhatIsWrong(t *testing.T) {
	ctx := testContext(t)
	_, err := Start(ctx, &Config{ExtraFlags: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "no-such-flag")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Start(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestStart_UsesTheOneOfTheEnvironment(t *testing.T) {
	ctx := testContext(t)
	mine := startEtcd(t, nil)
	t.Setenv(EndpointsVar, mine.Endpoint())
	e, err := Start(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, mine.Endpoint(), e.Endpoint())
	require.NoError(t, e.Stop(ctx))
	for _, err := range []error{e.Kill(), e.Restart(ctx), e.Pause(), e.Resume()} {
		require.ErrorIs(t, err, process.ErrNotOurs)
		require.ErrorContains(t, err, EndpointsVar)
	}
	require.NoError(t, mine.ping(ctx))

	require.NoError(t, mine.Kill())
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = Start(short, nil)
	require.ErrorContains(t, err, EndpointsVar)
}
