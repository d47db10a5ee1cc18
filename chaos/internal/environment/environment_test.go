package environment

import (
	"errors"
	"sync/atomic"

	"github.com/fencekit/fencekit/internal/testenv"

	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
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

func TestMain(m *testing.M) {
	worker.Reexec(passer{})
	testenv.Main(m)
}

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

// noted is a fault that does nothing, and counts how often it is injected and reverted.
type noted struct {
	fails, failsToRevert error
	injected, reverted   *atomic.Int32
}

func (noted) String() string { return "noted w0" }

func (f noted) Inject(context.Context, fault.Site) (func(context.Context) error, error) {
	f.injected.Add(1)
	if f.fails != nil {
		return nil, f.fails
	}
	return func(context.Context) error { f.reverted.Add(1); return f.failsToRevert }, nil
}

// once is a schedule of one fault.
func once(f fault.Fault) []fault.Step {
	return []fault.Step{{At: time.Millisecond, For: time.Millisecond, Fault: f}}
}

func TestPlay_RecordsInjectsAndRevertsEachFault(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fails, failsToRevert error
		says                 string
		reverted             int32
		recorded             []string
	}{
		"injected and reverted": {nil, nil, "", 1, []string{"injected noted w0", "reverted noted w0"}},
		"missed":                {fmt.Errorf("%w: it has gone", fault.ErrMissed), nil, "", 0, []string{"note missed"}},
		"it fails":              {broken, nil, "chaos: noted w0: broken", 0, nil},
		"it stays":              {nil, broken, "chaos: reverting noted w0: broken", 1, []string{"injected noted w0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(Config{Trace: history.NewTrace(history.NewRecorder(io.Discard))})
			f := noted{c.fails, c.failsToRevert, new(atomic.Int32), new(atomic.Int32)}
			err := s.play(patient(t), once(f))
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			require.EqualValues(t, 1, f.injected.Load())
			require.Equal(t, c.reverted, f.reverted.Load())
			var recorded []string
			for _, e := range s.cfg.Trace.Events() {
				recorded = append(recorded, string(e.Kind)+" "+e.Name)
			}
			require.Equal(t, c.recorded, recorded)
		})
	}
}
