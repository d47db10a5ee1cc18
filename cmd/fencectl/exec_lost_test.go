//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/clock"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

var execRuns = flag.Int("exec-runs", 3, "how often a command under exec loses its lock")

// The time to live and the grace of these tests.
const (
	execTTL   = 8 * time.Second
	execGrace = time.Second
)

// held is a command that runs under "exec".
type held struct {
	fencectl *exec.Cmd
	ended    chan error // how fencectl ended
	beats    *beats
	link     *netfault.Link // between fencectl and etcd
	client   *clientv3.Client
	prefix   string
	key      string
	lease    clientv3.LeaseID
	gone     chan int64 // when the lock was seen to be gone in etcd
}

// execHeld runs a command under "exec" until all of it runs and the lock is held, and for a while
// longer. A slow machine may lose the lock before that, and then it begins again.
func execHeld(t *testing.T, client *clientv3.Client, longer time.Duration) *held {
	t.Helper()
	for {
		h := startHeld(t, client)
		select {
		case <-h.beats.both:
			if h.watchLock(t) && h.keepsLock(t, longer) {
				return h
			}
			t.Log("begins again")
		case err := <-h.ended:
			t.Log("begins again")
			require.Equal(t, exitLockLost, clitest.ExitCode(t, func() error { return err }))
		}
	}
}

func startHeld(t *testing.T, client *clientv3.Client) *held {
	t.Helper()
	prefix, _ := onEtcd(t)
	link, err := netfault.New(strings.TrimPrefix(etcdserver.Shared(t).Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = link.Close() })
	h := &held{ended: make(chan error, 1), beats: newBeats(t), link: link, client: client, prefix: prefix, gone: make(chan int64, 1)}
	args := []string{"exec", "sku/42", "--etcd-endpoints", "http://" + link.Addr(), "--etcd-prefix", prefix, "--ttl", execTTL.String(), "--kill-after", execGrace.String(), "--"}
	h.fencectl = clitest.Child(t, nil, append(args, h.beats.command()...)...)
	require.NoError(t, h.fencectl.Start())
	go func() { h.ended <- h.fencectl.Wait() }()
	return h
}

// watchLock finds the lock's key and lease, and notes when they go. It reports whether the lock
// was still there.
func (h *held) watchLock(t *testing.T) bool {
	t.Helper()
	resp, err := h.client.Get(t.Context(), h.prefix+"/locks/", clientv3.WithPrefix())
	require.NoError(t, err)
	if len(resp.Kvs) == 0 {
		return false
	}
	h.key, h.lease = string(resp.Kvs[0].Key), clientv3.LeaseID(resp.Kvs[0].Lease)
	watch := h.client.Watch(t.Context(), h.key, clientv3.WithRev(resp.Header.Revision+1), clientv3.WithFilterPut())
	go func() {
		for range watch {
			h.gone <- clock.Now()
			return
		}
	}()
	return true
}

// keepsLock reports, after a while, whether the lock was held and the command ran until then.
func (h *held) keepsLock(t *testing.T, while time.Duration) bool {
	t.Helper()
	select {
	case <-h.gone:
		return false
	case err := <-h.ended:
		require.Equal(t, exitLockLost, clitest.ExitCode(t, func() error { return err }))
		return false
	case <-time.After(while):
		return true
	}
}

// outlived is how long the command was known to live after the lock was gone; negative if it
// had ended before. It ends fencectl.
func (h *held) outlived(t *testing.T) (time.Duration, int) {
	t.Helper()
	last, gone := h.beats.awaitOver(t), int64(0)
	select {
	case gone = <-h.gone:
	case <-time.After(time.Minute):
		require.FailNow(t, "the lock is never free")
	}
	_ = h.fencectl.Process.Signal(syscall.SIGCONT) // or it would release the lock itself
	return time.Duration(last - gone), clitest.ExitCode(t, func() error { return <-h.ended })
}

// losses are the ways to lose a lock. Those that take it away before its time do so without
// fencectl's knowing, at worst; then the command may live on for the time to live.
var losses = []struct {
	name  string
	bound time.Duration
	code  int
	lose  func(ctx context.Context, h *held) error
}{
	{"killed", 0, -1, func(_ context.Context, h *held) error { return h.fencectl.Process.Kill() }},
	{"stopped", 0, exitLockLost, func(_ context.Context, h *held) error { return h.fencectl.Process.Signal(syscall.SIGSTOP) }},
	{"cut off", 0, exitLockLost, func(_ context.Context, h *held) error { return h.cut() }},
	{"revoked", execTTL, exitLockLost, func(ctx context.Context, h *held) error { return h.revoke(ctx) }},
	{"deleted", execTTL, exitLockLost, func(ctx context.Context, h *held) error {
		_, err := h.client.Delete(ctx, h.key)
		return err
	}},
	{"stopped and revoked", execTTL, exitLockLost, func(ctx context.Context, h *held) error {
		if err := h.fencectl.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		return h.revoke(ctx)
	}},
}

func (h *held) cut() error {
	h.link.Cut(netfault.ToServer)
	h.link.Cut(netfault.ToClient)
	return nil
}

func (h *held) revoke(ctx context.Context) error {
	_, err := h.client.Revoke(ctx, h.lease)
	return err
}

// At a random moment fencectl is killed, stopped or cut off, or the lock is taken away. Two
// processes of the command's group, one of which ignores SIGTERM, say when they live.
func TestExec_TheCommandDoesNotOutliveTheLock(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	results := make([][]time.Duration, len(losses))
	var mu sync.Mutex
	t.Run("runs", func(t *testing.T) {
		for run := range *execRuns {
			kind := run % len(losses)
			loss := losses[kind]
			t.Run(fmt.Sprintf("%s/%d", loss.name, run), func(t *testing.T) {
				t.Parallel()
				h := execHeld(t, client, rand.N(execTTL)) // until the moment
				require.NoError(t, loss.lose(t.Context(), h))
				outlived, code := h.outlived(t)
				require.LessOrEqual(t, outlived, loss.bound)
				require.Equal(t, loss.code, code)
				mu.Lock()
				defer mu.Unlock()
				results[kind] = append(results[kind], outlived)
			})
		}
	})
	for kind, all := range results {
		slices.Sort(all)
		if len(all) > 0 {
			t.Logf("%s: %d runs, outlived the lock by %v to %v, bound %v", losses[kind].name, len(all), all[0], all[len(all)-1], losses[kind].bound)
		}
	}
}
