package fault_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

// worker is a worker process, or the links of one.
type worker struct {
	name     string
	etcd     []*netfault.Link
	postgres *netfault.Link
	commits  *pgproxy.Proxy

	child *child.Process
	in    io.WriteCloser
	said  chan string // the lines that it prints; closed at its end
	world *pause.WorldStopper
}

func (w *worker) Name() string                  { return w.name }
func (w *worker) ToEtcd() []*netfault.Link      { return w.etcd }
func (w *worker) ToPostgres() *netfault.Link    { return w.postgres }
func (w *worker) Commits() *pgproxy.Proxy       { return w.commits }
func (w *worker) Signal(s syscall.Signal) error { return w.child.Signal(s) }
func (w *worker) Resume() error                 { return w.child.Resume() }
func (w *worker) Kill() error                   { return w.child.Kill() }

func (w *worker) Start(context.Context) (err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), workerVar+"=1")
	if w.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, outEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = outEnd
	world, err := pause.NewWorldStopper()
	if err != nil {
		return err
	}
	cmd.ExtraFiles = []*os.File{world.File()}
	w.world = world
	w.child, err = child.Start(cmd)
	_ = outEnd.Close()
	_ = world.File().Close()
	if err != nil {
		return err
	}
	said := make(chan string, 10)
	w.said = said
	go func() {
		defer close(said)
		defer world.Close()
		defer out.Close()
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	return nil
}

func (w *worker) AwaitStopped(ctx context.Context) error {
	for {
		if stopped, err := pause.Stopped(w.child.Pid()); stopped || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

func (w *worker) StopTheWorld(ctx context.Context) (func(context.Context) error, error) {
	w.tell("stall")
	stop, err := w.world.Next(ctx)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return stop.Resume() }, nil
}

// Arm arms the process, and waits until the test has sent it to the point.
func (w *worker) Arm(ctx context.Context, point string, then fault.Then) error {
	w.tell("arm " + point + " " + string(then))
	if then == fault.ThenKill {
		w.child.Wait()
		return nil
	}
	return w.AwaitStopped(ctx)
}

func (w *worker) tell(line string) {
	_, _ = fmt.Fprintln(w.in, line) // a process that has ended reads nothing
}

// requireSays requires that the next thing the process says is a line.
func (w *worker) requireSays(t testing.TB, line string) {
	t.Helper()
	select {
	case said, ok := <-w.said:
		require.True(t, ok, "the process has ended")
		require.Equal(t, line, said)
	case <-patient(t).Done():
		require.Fail(t, "the process says nothing")
	}
}

// requireSilent requires that the process prints nothing for a while.
func (w *worker) requireSilent(t testing.TB) {
	t.Helper()
	select {
	case said := <-w.said:
		require.Fail(t, "the process says "+said)
	case <-brief(t).Done():
	}
}

func startWorker(t testing.TB) *worker {
	t.Helper()
	w := &worker{name: "w0"}
	require.NoError(t, w.Start(patient(t)))
	t.Cleanup(func() {
		require.NoError(t, w.Kill())
		for range w.said { // until its end
		}
	})
	w.tell("ping")
	w.requireSays(t, "pong")
	return w
}
