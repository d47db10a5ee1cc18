//go:build unix

package fencectl

import (
	"bufio"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
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

var execRuns = flag.Int("exec-runs", len(losses), "how often a command under exec loses its lock")

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
	link     *netfault.Link // between fencectl and the lock service
	lock     *heldLock
	gone     chan int64 // when the lock was seen to be gone there
}

// heldLock is the lock of the command, as etcd has it. Those of Postgres end as package pglock's tests require.
type heldLock struct {
	client   *clientv3.Client
	prefix   string
	key      string
	lease    clientv3.LeaseID
	revision int64
}

// find notes which lock it is, and reports whether it is there.
func (l *heldLock) find(t *testing.T) bool {
	resp, err := l.client.Get(t.Context(), l.prefix+"/locks/", clientv3.WithPrefix())
	require.NoError(t, err)
	if len(resp.Kvs) == 0 {
		return false
	}
	l.key, l.lease, l.revision = string(resp.Kvs[0].Key), clientv3.LeaseID(resp.Kvs[0].Lease), resp.Header.Revision
	return true
}

// awaitGone returns when it is gone, or the test ends.
func (l *heldLock) awaitGone(ctx context.Context) {
	<-l.client.Watch(ctx, l.key, clientv3.WithRev(l.revision+1), clientv3.WithFilterPut())
}

// execHeld runs a command under "exec" until all of it runs and the lock is held, and for a while
// longer. A slow machine may lose the lock before that, and then it begins again.
func execHeld(t *testing.T, longer time.Duration) *held {
	t.Helper()
	for {
		h := startHeld(t)
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

func startHeld(t *testing.T) *held {
	t.Helper()
	link, err := netfault.New(strings.TrimPrefix(etcdserver.Shared(t).Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = link.Close() })
	h := &held{ended: make(chan error, 1), beats: newBeats(t), link: link, lock: &heldLock{client: etcdserver.Client(t), prefix: "exec-" + rand.Text()}, gone: make(chan int64, 1)}
	args := append([]string{"exec", "sku/42", "--ttl", execTTL.String(), "--kill-after", execGrace.String(),
		"--etcd-endpoints", "http://" + link.Addr(), "--etcd-prefix", h.lock.prefix, "--"}, h.beats.command()...)
	h.fencectl = clitest.Child(t, nil, args...)
	require.NoError(t, h.fencectl.Start())
	go func() { h.ended <- h.fencectl.Wait() }()
	return h
}

// watchLock finds the lock, and notes when it goes. It reports whether it was still there.
func (h *held) watchLock(t *testing.T) bool {
	t.Helper()
	if !h.lock.find(t) {
		return false
	}
	go func() {
		h.lock.awaitGone(t.Context())
		h.gone <- clock.Now()
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
	{"cut off", 0, exitLockLost, func(_ context.Context, h *held) error {
		h.link.Cut(netfault.ToServer, netfault.ToClient)
		return nil
	}},
	{"revoked", execTTL, exitLockLost, func(ctx context.Context, h *held) error {
		_, err := h.lock.client.Revoke(ctx, h.lock.lease)
		return err
	}},
	{"deleted", execTTL, exitLockLost, func(ctx context.Context, h *held) error {
		_, err := h.lock.client.Delete(ctx, h.lock.key)
		return err
	}},
	{"stopped and revoked", execTTL, exitLockLost, func(ctx context.Context, h *held) error {
		if err := h.fencectl.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		_, err := h.lock.client.Revoke(ctx, h.lock.lease)
		return err
	}},
}

// At a random moment fencectl is killed, stopped or cut off, or the lock is taken away. Two
// processes of the command's group, one of which ignores SIGTERM, say when they live.
func TestExec_TheCommandDoesNotOutliveTheLock(t *testing.T) {
	t.Parallel()
	for run := range *execRuns {
		loss := losses[run%len(losses)]
		t.Run(fmt.Sprintf("%s/%d", loss.name, run), func(t *testing.T) {
			t.Parallel()
			h := execHeld(t, mathrand.N(execTTL)) // until the moment
			require.NoError(t, loss.lose(t.Context(), h))
			outlived, code := h.outlived(t)
			t.Logf("outlived the lock by %v", outlived)
			require.LessOrEqual(t, outlived, loss.bound)
			require.Equal(t, loss.code, code)
		})
	}
}

// beatRole, as the first argument, makes this binary a process that says all the time that it is
// alive.
const beatRole = "be-alive"

// beat writes its process id and the time into a pipe every two milliseconds. With "parent" it
// starts another one in its process group, which ignores SIGTERM.
func beat(pipe string, parent bool) {
	if parent {
		child := exec.Command(os.Args[0], beatRole, pipe)
		if err := child.Start(); err != nil {
			panic(err)
		}
	} else {
		signal.Ignore(syscall.SIGTERM)
	}
	to, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	for range time.Tick(2 * time.Millisecond) {
		if _, err := fmt.Fprintf(to, "%d %d\n", os.Getpid(), clock.Now()); err != nil {
			return // the test has ended
		}
	}
}

// beats are what the processes of a command have written.
type beats struct {
	pipe string
	both chan struct{} // closed when two of them live
	over chan struct{} // closed when none of them lives any more

	mu   sync.Mutex
	last map[int]int64 // by process
}

func newBeats(t *testing.T) *beats {
	t.Helper()
	b := &beats{pipe: filepath.Join(t.TempDir(), "beats"), both: make(chan struct{}), over: make(chan struct{}), last: map[int]int64{}}
	require.NoError(t, syscall.Mkfifo(b.pipe, 0o600))
	go b.read()
	t.Cleanup(b.endWithoutWriter)
	return b
}

// endWithoutWriter ends the reading if no process of the command has ever begun.
func (b *beats) endWithoutWriter() {
	if to, err := os.OpenFile(b.pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		_ = to.Close()
	}
}

// command is what to run to make the beats.
func (b *beats) command() []string { return []string{os.Args[0], beatRole, b.pipe, "parent"} }

func (b *beats) read() {
	defer close(b.over)
	from, err := os.Open(b.pipe) // returns when there is a writer
	if err != nil {
		return
	}
	defer from.Close()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var pid int
		var at int64
		if _, err := fmt.Sscan(lines.Text(), &pid, &at); err == nil {
			b.note(pid, at)
		}
	}
}

func (b *beats) note(pid int, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.last[pid]; !known && len(b.last) == 1 {
		close(b.both)
	}
	b.last[pid] = at
}

// awaitOver returns when the last of the processes was known to live.
func (b *beats) awaitOver(t *testing.T) (at int64) {
	t.Helper()
	select {
	case <-b.over:
	case <-time.After(time.Minute):
		require.FailNow(t, "the command lives on")
	}
	for _, last := range b.last {
		at = max(at, last)
	}
	return at
}
