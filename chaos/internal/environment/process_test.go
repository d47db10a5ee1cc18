package environment

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/pause"
)

// passer is a workload without servers: an operation reaches the point that its resource
// names.
type passer struct{ workload.Workload }

func (passer) Name() string        { return "passer" }
func (passer) Resources() []string { return []string{"sku"} }

func (passer) Operate(_ context.Context, env *workload.Env, op workload.Op) error {
	switch op.Resource {
	case "exit":
		os.Exit(0)
	case "panic":
		go panic("at the disco") // one of Operate's own would be recovered
		select {}
	case "print":
		fmt.Println("what a workload prints")
	}
	env.Point(op.Resource)
	return nil
}

// patient is a context for what succeeds, however long a slow machine takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// brief is a context for what must not happen.
func brief(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// newEnvironment makes an Environment with one worker and no servers.
func newEnvironment(t *testing.T) (*Environment, *Worker) {
	t.Helper()
	s := New(Config{Trace: history.NewTrace(history.NewRecorder(io.Discard)), Bounds: UsualBounds, Faults: true})
	p := &Worker{trace: s.cfg.Trace, closeBound: time.Minute, log: filepath.Join(t.TempDir(), "w0.log"), spec: worker.Spec{
		Worker: "w0", Workload: passer{}.Name(), Group: result.Fenced, Prefix: "test", TTL: workload.TTL, Within: time.Minute,
		Etcd: []string{"http://127.0.0.1:1"}, Postgres: "postgres://nobody@127.0.0.1:1/none",
	}}
	s.workers = []*Worker{p}
	t.Cleanup(func() { require.NoError(t, p.kill()) })
	require.NoError(t, p.Start(patient(t)))
	return s, p
}

// pass sends the worker to a point.
func pass(t *testing.T, s *Environment, point string) *Operation {
	t.Helper()
	op, err := s.Operate(0, workload.Op{Resource: point})
	require.NoError(t, err)
	return op
}

func requirePasses(t *testing.T, s *Environment, point string) {
	t.Helper()
	e, err := pass(t, s, point).Wait(patient(t))
	require.NoError(t, err)
	require.Equal(t, history.OK, e.Kind, e.Error)
}

func TestProcess_WhatTheWorkloadPrintsIsNoEvent(t *testing.T) {
	s, p := newEnvironment(t)
	requirePasses(t, s, "print")
	require.NoError(t, p.Stop())
	require.Contains(t, p.present().lastOutput(), "what a workload prints")
	require.NoError(t, s.Crashes())
}

// A process that has ended never answers: waiting for it would hang.
func TestProcess_ThatHasEndedIsMissed(t *testing.T) {
	s, p := newEnvironment(t)
	require.NoError(t, p.Kill())
	require.ErrorIs(t, p.Kill(), fault.ErrMissed)
	require.ErrorIs(t, p.Signal(syscall.SIGSTOP), fault.ErrMissed)
	require.ErrorIs(t, p.AwaitStopped(patient(t)), fault.ErrMissed)
	require.ErrorIs(t, p.Arm(patient(t), "here", fault.ThenPause), fault.ErrMissed)
	_, err := p.StopTheWorld(patient(t))
	require.ErrorIs(t, err, fault.ErrMissed)
	_, err = s.Operate(0, workload.Op{Resource: "here"})
	require.ErrorIs(t, err, ErrProcessEnded)
	require.ErrorIs(t, s.endLoad(patient(t)), ErrProcessEnded)

	require.NoError(t, p.Start(patient(t)))
	requirePasses(t, s, "here")
	revert, err := (fault.Kill{}).Inject(patient(t), s)
	require.NoError(t, err)
	_, err = (fault.Kill{}).Inject(patient(t), s)
	require.ErrorIs(t, err, fault.ErrMissed)
	require.NoError(t, revert(patient(t)))
	requirePasses(t, s, "here")
}

func TestArm_StopsAtThePointUntilResumed(t *testing.T) {
	s, p := newEnvironment(t)
	armed := make(chan error)
	go func() { armed <- p.Arm(patient(t), "here", fault.ThenPause) }()
	var op *Operation
	for stopped := false; !stopped; { // until the trap is set before an operation begins
		requirePasses(t, s, "elsewhere")
		op = pass(t, s, "here")
		select {
		case err := <-armed:
			require.NoError(t, err)
			stopped = true
		case <-op.Done(): // it passed before the trap was set
		}
	}
	stopped, err := pause.Stopped(p.present().child.Pid())
	require.NoError(t, err)
	require.True(t, stopped)
	require.ErrorIs(t, p.Signal(syscall.SIGSTOP), fault.ErrMissed, "one SIGCONT would end both stops")
	require.NoError(t, p.Resume())
	_, err = op.Wait(patient(t))
	require.NoError(t, err)
	requirePasses(t, s, "here")
}

func TestArm_IsDisarmedWhenItsTimeIsOver(t *testing.T) {
	s, p := newEnvironment(t)
	require.ErrorIs(t, p.Arm(brief(t), "here", fault.ThenKill), fault.ErrMissed)
	requirePasses(t, s, "here")
}

// Two traps in one process would each take the other's event for their own.
func TestArm_OneTrapAtATime(t *testing.T) {
	s, p := newEnvironment(t)
	first, err := p.SetTrap("here", 0, fault.ThenKill)
	require.NoError(t, err)
	require.ErrorIs(t, p.Arm(patient(t), "there", fault.ThenPause), fault.ErrMissed)
	requirePasses(t, s, "there")
	op := pass(t, s, "here")
	require.NoError(t, first.Sprung(patient(t)))
	_, err = op.Wait(patient(t))
	require.ErrorIs(t, err, ErrProcessEnded)
	require.NoError(t, p.Start(patient(t)))
	require.NoError(t, s.Crashes(), "the run killed it")
	require.ErrorIs(t, p.Arm(brief(t), "there", fault.ThenPause), fault.ErrMissed)
}

// The trap's process was killed; the present one has no trap.
func TestArm_IsMissedWhenItsProcessIsKilled(t *testing.T) {
	s, p := newEnvironment(t)
	set, err := p.SetTrap("here", 0, fault.ThenKill)
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.NoError(t, p.Start(patient(t)))
	require.ErrorIs(t, set.Sprung(patient(t)), fault.ErrMissed)
	requirePasses(t, s, "here")
}

func TestProcess_ATrapSeesTheEndOfItsOwnProcess(t *testing.T) {
	s, p := newEnvironment(t)
	set, err := p.SetTrap("here", 0, fault.ThenKill)
	require.NoError(t, err)
	pass(t, s, "here")
	<-p.present().ended
	require.NoError(t, p.Start(patient(t)), "a new process starts before the trap is looked at")
	require.NoError(t, set.Sprung(patient(t)))
}

func TestProcess_CrashesDifferFromKills(t *testing.T) {
	for _, how := range []string{"exit", "panic"} {
		s, p := newEnvironment(t)
		_, err := pass(t, s, how).Wait(patient(t))
		require.ErrorIs(t, err, ErrProcessEnded)
		require.NoError(t, p.Stop())
		require.ErrorContains(t, s.Crashes(), "w0 ended by itself")
		if how == "panic" {
			require.ErrorContains(t, s.Crashes(), "at the disco")
		}
	}
	s, p := newEnvironment(t)
	require.NoError(t, p.Kill())
	require.NoError(t, p.Start(patient(t)))
	require.NoError(t, p.Stop())
	require.NoError(t, s.Crashes())
	require.NoError(t, p.Start(patient(t)))
	require.NoError(t, syscall.Kill(p.present().child.Pid(), syscall.SIGKILL)) // not the run's doing
	<-p.present().ended
	require.ErrorContains(t, s.Crashes(), "signal: killed")
}

// A stopped process reads no commands: its pipe fills up. It can still be killed.
func TestProcess_ThatReadsNoCommandsCanBeKilled(t *testing.T) {
	_, p := newEnvironment(t)
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	require.NoError(t, p.AwaitStopped(patient(t)))
	stopped := p.present()
	fillPipe(t, stopped.in)
	sent := make(chan error)
	go func() { sent <- p.Command(worker.Command{}) }()
	for stopped.sending.TryLock() { // until the command is being written, which can't end
		stopped.sending.Unlock()
	}
	require.NoError(t, p.Kill())
	require.ErrorIs(t, <-sent, ErrProcessEnded)
}

// fillPipe writes into a pipe until not a byte more goes into it.
func fillPipe(t *testing.T, pipe *os.File) {
	t.Helper()
	raw, err := pipe.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Write(func(fd uintptr) bool {
		for _, size := range []int{4096, 1} {
			for err = nil; err == nil; {
				_, err = syscall.Write(int(fd), make([]byte, size))
			}
		}
		return true
	}))
	require.ErrorIs(t, err, syscall.EAGAIN)
}

func TestProcess_LeavesNoFilesOpen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close them
	_, p := newEnvironment(t)
	again := func() {
		require.NoError(t, p.Kill())
		require.NoError(t, p.Start(patient(t)))
	}
	again()
	before := openFiles(t)
	for range 5 {
		again()
	}
	require.LessOrEqual(t, openFiles(t), before)
	p.log = "/nowhere/to/be/written"
	require.NoError(t, p.Kill())
	before = openFiles(t)
	require.Error(t, p.Start(patient(t)))
	require.ErrorIs(t, p.Kill(), fault.ErrMissed, "there is no process")
	require.LessOrEqual(t, openFiles(t), before)
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// Faults of one worker may overlap.
func TestProcess_FaultsMayOverlap(t *testing.T) {
	s, p := newEnvironment(t)
	resume, err := p.StopTheWorld(patient(t))
	require.NoError(t, err)
	_, err = p.StopTheWorld(patient(t))
	require.ErrorIs(t, err, fault.ErrMissed)
	unpause, err := (fault.Pause{}).Inject(patient(t), s)
	require.NoError(t, err)
	_, err = (fault.Pause{}).Inject(patient(t), s)
	require.ErrorIs(t, err, fault.ErrMissed)
	revert, err := (fault.Kill{}).Inject(patient(t), s)
	require.NoError(t, err, "it is stopped twice, and can be killed")
	require.NoError(t, resume(patient(t)))
	require.NoError(t, unpause(patient(t)))
	require.NoError(t, revert(patient(t)))
	requirePasses(t, s, "here")
	resume, err = p.StopTheWorld(patient(t))
	require.NoError(t, err)
	require.NoError(t, resume(patient(t)))
	requirePasses(t, s, "here")
	require.NoError(t, s.Crashes())
}
