package testenv

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// testContext ends a test that hangs; no machine needs that long.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

func startEtcd(t *testing.T, cfg *EtcdConfig) *Etcd {
	t.Helper()
	e, err := StartEtcd(testContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

func etcdClient(t *testing.T, e *Etcd) *clientv3.Client {
	t.Helper()
	client, err := e.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestEtcd_KeepsDataAndEndpointOverKillAndRestart(t *testing.T) {
	ctx := testContext(t)
	e := startEtcd(t, nil)
	client, endpoint := etcdClient(t, e), e.Endpoint()
	_, err := client.Put(ctx, "k", "v")
	require.NoError(t, err)

	require.NoError(t, e.Kill())
	require.NoError(t, e.Kill())
	require.Error(t, process.Listening(e.controller.(*process.Server).Ports[0].Address())(ctx))
	require.NoError(t, e.Restart(ctx))
	require.NoError(t, e.Restart(ctx)) // of one that runs

	require.Equal(t, endpoint, e.Endpoint())
	got, err := client.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(got.Kvs[0].Value))
}

func TestEtcd_StopIsForGood(t *testing.T) {
	ctx := testContext(t)
	e := startEtcd(t, nil)
	root := e.controller.(*process.Server).Dir.Root
	require.DirExists(t, root)
	require.NoError(t, e.Pause()) // Stop also ends what is paused
	require.NoError(t, e.Stop(ctx))
	require.NoError(t, e.Stop(ctx))
	require.NoDirExists(t, root)
	require.Equal(t, "signal: terminated", e.controller.(*process.Server).Proc.Cmd.ProcessState.String(), "not by force")
	require.ErrorIs(t, e.Restart(ctx), process.ErrStopped)
	require.ErrorIs(t, e.Pause(), process.ErrNotRunning)
	require.ErrorIs(t, e.Resume(), process.ErrNotRunning)
}

func TestEtcd_GrantsTTLOfOneSecond(t *testing.T) {
	lease, err := etcdClient(t, startEtcd(t, nil)).Grant(testContext(t), 1)
	require.NoError(t, err)
	require.EqualValues(t, 1, lease.TTL)
}

// While it is paused it accepts connections and answers nothing.
func TestEtcd_PauseIsSilent(t *testing.T) {
	ctx := testContext(t)
	e := startEtcd(t, nil)
	require.NoError(t, e.Pause())
	stopped, err := process.IsStopped(e.controller.(*process.Server).Proc.Cmd.Process.Pid)
	require.NoError(t, err)
	require.True(t, stopped)
	require.NoError(t, process.Listening(e.controller.(*process.Server).Ports[0].Address())(ctx))
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = etcdClient(t, e).Get(short, "k")
	require.Error(t, err)
	require.NoError(t, e.Resume())
	require.NoError(t, e.ping(ctx))
}

func TestStartEtcd_KeepsTheDataOfItsDir(t *testing.T) {
	ctx := testContext(t)
	cfg := &EtcdConfig{Dir: filepath.Join(t.TempDir(), "data")}
	first := startEtcd(t, cfg)
	_, err := etcdClient(t, first).Put(ctx, "k", "v")
	require.NoError(t, err)
	require.NoError(t, first.Stop(ctx))
	got, err := etcdClient(t, startEtcd(t, cfg)).Get(ctx, "k")
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Count)
}

func TestStartEtcd_SaysWhatIsWrong(t *testing.T) {
	ctx := testContext(t)
	_, err := StartEtcd(ctx, &EtcdConfig{ExtraFlags: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "no-such-flag")
	_, err = StartEtcd(ctx, &EtcdConfig{Heartbeat: time.Second})
	require.ErrorContains(t, err, "5 heartbeats")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = StartEtcd(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// lockedBuffer is written by a server and read by a test.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) has(word string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Contains(b.text.Bytes(), []byte(word))
}

func TestEtcdConfig_LogGetsTheOutput(t *testing.T) {
	var log lockedBuffer
	startEtcd(t, &EtcdConfig{Log: &log, ExtraFlags: []string{"--log-level=info"}})
	ctx := testContext(t)
	for !log.has("etcd-version") {
		require.NoError(t, ctx.Err())
	}
}

func TestStartEtcd_UsesTheOneOfTheEnvironment(t *testing.T) {
	ctx := testContext(t)
	mine := startEtcd(t, nil)
	t.Setenv(EtcdVar, mine.Endpoint())
	e, err := StartEtcd(ctx, nil)
	require.NoError(t, err)
	require.Equal(t, mine.Endpoint(), e.Endpoint())
	for _, err := range []error{e.Stop(ctx), e.Kill(), e.Restart(ctx), e.Pause(), e.Resume()} {
		require.ErrorIs(t, err, ErrNotOurs)
		require.ErrorContains(t, err, EtcdVar)
	}
	require.NoError(t, mine.ping(ctx))

	require.NoError(t, mine.Kill())
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = StartEtcd(short, nil)
	require.ErrorContains(t, err, EtcdVar)
}

func TestStart_RefusesWithoutReexec(t *testing.T) {
	process.ReexecCalled.Store(false)
	defer process.ReexecCalled.Store(true)
	_, err := StartEtcd(testContext(t), nil)
	require.ErrorIs(t, err, process.ErrNoReexec)
}

func TestReservePort_IsExclusiveUntilReleased(t *testing.T) {
	p, err := process.ReservePort()
	require.NoError(t, err)
	seen := map[int]bool{p.Number: true}
	for range 200 {
		other, err := process.ReservePort()
		require.NoError(t, err)
		defer other.Release()
		require.False(t, seen[other.Number])
		seen[other.Number] = true
	}
	require.NoError(t, p.Release())
	require.NoError(t, p.Release())
}

func TestEtcd_ClosesItsLogFiles(t *testing.T) {
	before := openFiles(t)
	e := startEtcd(t, nil)
	require.NoError(t, e.Stop(testContext(t)))
	require.LessOrEqual(t, openFiles(t), before+2) // the janitor's pipe and handle
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(entries)
}
