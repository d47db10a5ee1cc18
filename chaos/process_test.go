package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/internal/pause"
)

// passer comes to the point that its operation names as its resource, prints, and
// needs no server.
var passer = code{name: "passer", operate: func(_ context.Context, env *Env, op Op) error {
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
}}

// patient is a context for what takes as long as it takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// brief is a context for what waits in vain.
func brief(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// newStage makes a stage with one worker, of which no server is there.
func newStage(t *testing.T) (*Stage, *process) {
	t.Helper()
	s := &Stage{story: &story{recorder: history.NewRecorder(io.Discard)}, bounds: usualBounds, Faults: true}
	p := &process{story: s.story, closeBound: time.Minute, log: filepath.Join(t.TempDir(), "w0.log"), spec: spec{
		Worker: "w0", Workload: passer.name, Group: result.Fenced, Prefix: "test", TTL: TTL, Within: time.Minute,
		Etcd: []string{"http://127.0.0.1:1"}, Postgres: "postgres://nobody@127.0.0.1:1/none",
	}}
	s.workers = []*process{p}
	t.Cleanup(func() { require.NoError(t, p.kill()) })
	require.NoError(t, p.Start(patient(t)))
	return s, p
}

// pass has the worker come to a point.
func pass(t *testing.T, s *Stage, point string) *Pending {
	t.Helper()
	op, err := s.Operate(0, Op{Resource: point})
	require.NoError(t, err)
	return op
}

func requirePasses(t *testing.T, s *Stage, point string) {
	t.Helper()
	e, err := pass(t, s, point).Wait(patient(t))
	require.NoError(t, err)
	require.Equal(t, history.OK, e.Kind, e.Error)
}

func TestProcess_WhatTheWorkloadPrintsIsNoEvent(t *testing.T) {
	s, p := newStage(t)
	requirePasses(t, s, "print")
	require.NoError(t, p.close())
	require.Contains(t, p.present().lastWords(), "what a workload prints")
	require.NoError(t, s.crashes())
}

// A process that has ended answers nothing: whoever waited for it would wait for ever.
func TestProcess_ThatHasEndedIsMissed(t *testing.T) {
	s, p := newStage(t)
	require.NoError(t, p.Kill())
	require.ErrorIs(t, p.Kill(), fault.ErrMissed)
	require.ErrorIs(t, p.Signal(syscall.SIGSTOP), fault.ErrMissed)
	require.ErrorIs(t, p.AwaitStopped(patient(t)), fault.ErrMissed)
	require.ErrorIs(t, p.Arm(patient(t), "here", fault.ThenStop), fault.ErrMissed)
	_, err := p.StopTheWorld(patient(t))
	require.ErrorIs(t, err, fault.ErrMissed)
	_, err = s.Operate(0, Op{Resource: "here"})
	require.ErrorIs(t, err, errProcessEnded)
	require.ErrorIs(t, s.quiet(patient(t)), errProcessEnded)

	require.NoError(t, p.Start(patient(t)))
	requirePasses(t, s, "here")
	heal, err := (fault.Kill{}).Strike(patient(t), s)
	require.NoError(t, err)
	_, err = (fault.Kill{}).Strike(patient(t), s)
	require.ErrorIs(t, err, fault.ErrMissed)
	require.NoError(t, heal(patient(t)))
	requirePasses(t, s, "here")
}

func TestArm_StopsAtThePointUntilResumed(t *testing.T) {
	s, p := newStage(t)
	armed := make(chan error)
	go func() { armed <- p.Arm(patient(t), "here", fault.ThenStop) }()
	var op *Pending
	for stopped := false; !stopped; { // until the command that arms it has overtaken an operation
		requirePasses(t, s, "elsewhere")
		op = pass(t, s, "here")
		select {
		case err := <-armed:
			require.NoError(t, err)
			stopped = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	stopped, err := pause.Stopped(p.present().child.Pid())
	require.NoError(t, err)
	require.True(t, stopped)
	require.ErrorIs(t, p.Signal(syscall.SIGSTOP), fault.ErrMissed, "whoever ends this stop would end the other")
	require.NoError(t, p.Resume())
	_, err = op.Wait(patient(t))
	require.NoError(t, err)
	requirePasses(t, s, "here")
}

func TestArm_IsTakenBackWhenItsTimeIsOver(t *testing.T) {
	s, p := newStage(t)
	require.ErrorIs(t, p.Arm(brief(t), "here", fault.ThenDie), fault.ErrMissed)
	requirePasses(t, s, "here")
}

// Two traps in one process would each take the other's for their own.
func TestArm_OneTrapAtATime(t *testing.T) {
	s, p := newStage(t)
	first, err := p.set(command{Arm: "here", Then: fault.ThenDie})
	require.NoError(t, err)
	require.ErrorIs(t, p.Arm(patient(t), "there", fault.ThenStop), fault.ErrMissed)
	requirePasses(t, s, "there")
	op := pass(t, s, "here")
	require.NoError(t, first.sprung(patient(t)))
	_, err = op.Wait(patient(t))
	require.ErrorIs(t, err, errProcessEnded)
	require.NoError(t, p.Start(patient(t)))
	require.NoError(t, s.crashes(), "it was made to die")
	require.ErrorIs(t, p.Arm(brief(t), "there", fault.ThenStop), fault.ErrMissed)
}

// The trap was in another process than the one that is there when its time is over.
func TestArm_IsMissedWhenItsProcessIsKilled(t *testing.T) {
	s, p := newStage(t)
	set, err := p.set(command{Arm: "here", Then: fault.ThenDie})
	require.NoError(t, err)
	require.NoError(t, p.Kill())
	require.NoError(t, p.Start(patient(t)))
	require.ErrorIs(t, set.sprung(patient(t)), fault.ErrMissed)
	requirePasses(t, s, "here")
}

func TestProcess_DeathAtAPointIsThatOfItsOwnLife(t *testing.T) {
	s, p := newStage(t)
	set, err := p.set(command{Arm: "here", Then: fault.ThenDie})
	require.NoError(t, err)
	pass(t, s, "here")
	<-p.present().ended
	require.NoError(t, p.Start(patient(t)), "somebody else starts it before the trap's owner looks")
	require.NoError(t, set.sprung(patient(t)))
}

func TestProcess_CrashesAreToldFromKills(t *testing.T) {
	for _, how := range []string{"exit", "panic"} {
		s, p := newStage(t)
		_, err := pass(t, s, how).Wait(patient(t))
		require.ErrorIs(t, err, errProcessEnded)
		require.NoError(t, p.close())
		require.ErrorContains(t, s.crashes(), "w0 has ended, and nobody made it")
		if how == "panic" {
			require.ErrorContains(t, s.crashes(), "at the disco")
		}
	}
	s, p := newStage(t)
	require.NoError(t, p.Kill())
	require.NoError(t, p.Start(patient(t)))
	require.NoError(t, p.close())
	require.NoError(t, s.crashes())
	require.NoError(t, p.Start(patient(t)))
	require.NoError(t, syscall.Kill(p.present().child.Pid(), syscall.SIGKILL)) // nobody of the run's
	<-p.present().ended
	require.ErrorContains(t, s.crashes(), "signal: killed")
}

// A stopped process takes no commands when its pipe is full, but can be killed.
func TestProcess_ThatTakesNoCommandsCanBeKilled(t *testing.T) {
	_, p := newStage(t)
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	require.NoError(t, p.AwaitStopped(patient(t)))
	sent := make(chan error)
	var full sync.Mutex
	count := 0
	go func() {
		for {
			err := p.command(command{Arm: strings.Repeat("x", 4000)})
			if err != nil {
				sent <- err
				return
			}
			full.Lock()
			count++
			full.Unlock()
		}
	}()
	for before := -1; ; { // until it hasn't got on for a while
		full.Lock()
		now := count
		full.Unlock()
		if now == before && now > 0 {
			break
		}
		before = now
		time.Sleep(50 * time.Millisecond)
	}
	require.NoError(t, p.Kill())
	require.ErrorIs(t, <-sent, errProcessEnded)
}

func TestProcess_LeavesNoFilesOpen(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close them
	_, p := newStage(t)
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
	require.ErrorIs(t, p.Kill(), fault.ErrMissed, "there is none, and that is no panic")
	require.LessOrEqual(t, openFiles(t), before)
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// Faults of one worker may overlap.
func TestProcess_StandsFaultsThatOverlap(t *testing.T) {
	s, p := newStage(t)
	resume, err := p.StopTheWorld(patient(t))
	require.NoError(t, err)
	_, err = p.StopTheWorld(patient(t))
	require.ErrorIs(t, err, fault.ErrMissed)
	unpause, err := (fault.Pause{}).Strike(patient(t), s)
	require.NoError(t, err)
	_, err = (fault.Pause{}).Strike(patient(t), s)
	require.ErrorIs(t, err, fault.ErrMissed)
	heal, err := (fault.Kill{}).Strike(patient(t), s)
	require.NoError(t, err, "it is stopped twice over, and dies")
	require.NoError(t, resume(patient(t)))
	require.NoError(t, unpause(patient(t)))
	require.NoError(t, heal(patient(t)))
	requirePasses(t, s, "here")
	resume, err = p.StopTheWorld(patient(t))
	require.NoError(t, err)
	require.NoError(t, resume(patient(t)))
	requirePasses(t, s, "here")
	require.NoError(t, s.crashes())
}
