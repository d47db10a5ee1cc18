package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/pause"
)

// passer is a workload without servers: an operation reaches the point that its resource
// names.
type passer struct{ worker.Workload }

func (passer) Name() string        { return "passer" }
func (passer) Resources() []string { return []string{"sku"} }

func (passer) Operate(_ context.Context, env *worker.Env, op worker.Op) error {
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

// brief is a context for what must not happen.
func brief(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// newEnvironment makes an Environment with one worker and no servers.
func newEnvironment(t *testing.T) (*environment, *seat) {
	t.Helper()
	s := &environment{Task: Task{Faults: true, bounds: usualBounds}, trace: history.NewTrace(history.NewRecorder(io.Discard))}
	p := &seat{trace: s.trace, bounds: usualBounds, log: filepath.Join(t.TempDir(), "w0.log"), spec: worker.Spec{
		Worker: "w0", Workload: passer{}.Name(), Group: check.Fenced, Prefix: "test", Within: time.Minute,
		Servers: worker.Servers{TTL: worker.TTL, Etcd: []string{"http://127.0.0.1:1"}, Postgres: "postgres://nobody@127.0.0.1:1/none"},
	}}
	s.workers = []*seat{p}
	t.Cleanup(func() { require.NoError(t, p.kill()) })
	require.NoError(t, p.start(patient(t)))
	return s, p
}

// pass sends the worker to a point.
func pass(t *testing.T, s *environment, point string) *operation {
	t.Helper()
	op, err := s.operate(0, worker.Op{Resource: point})
	require.NoError(t, err)
	return op
}

func requirePasses(t *testing.T, s *environment, point string) {
	t.Helper()
	e, err := pass(t, s, point).wait(patient(t))
	require.NoError(t, err)
	require.Equal(t, history.OK, e.Kind, e.Error)
}

func TestProcess_WhatTheWorkloadPrintsIsNoEvent(t *testing.T) {
	s, p := newEnvironment(t)
	requirePasses(t, s, "print")
	require.NoError(t, p.stop())
	require.Contains(t, p.present().lastOutput(), "what a workload prints")
	require.NoError(t, p.crashes())
}

// A process that has ended never answers: waiting for it would hang.
func TestProcess_ThatHasEndedIsMissed(t *testing.T) {
	s, p := newEnvironment(t)
	require.NoError(t, p.crash())
	require.ErrorIs(t, p.crash(), errMissed)
	require.ErrorIs(t, p.pause(patient(t)), errMissed)
	require.ErrorIs(t, p.present().awaitStopped(patient(t)), errMissed)
	require.ErrorIs(t, p.arm(patient(t), "here", history.ThenPause), errMissed)
	_, err := p.stopTheWorld(patient(t))
	require.ErrorIs(t, err, errMissed)
	_, err = s.operate(0, worker.Op{Resource: "here"})
	require.ErrorIs(t, err, errProcessEnded)
	require.ErrorIs(t, s.endLoad(patient(t)), errProcessEnded)

	require.NoError(t, p.start(patient(t)))
	requirePasses(t, s, "here")
	revert, err := killWorker(0, anywhere).inject(patient(t), s)
	require.NoError(t, err)
	_, err = killWorker(0, anywhere).inject(patient(t), s)
	require.ErrorIs(t, err, errMissed)
	require.NoError(t, revert(patient(t)))
	requirePasses(t, s, "here")
}

func TestArm_StopsAtThePointUntilResumed(t *testing.T) {
	s, p := newEnvironment(t)
	armed := make(chan error)
	go func() { armed <- p.arm(patient(t), "here", history.ThenPause) }()
	var op *operation
	for stopped := false; !stopped; { // until the trap is set before an operation begins
		requirePasses(t, s, "elsewhere")
		op = pass(t, s, "here")
		select {
		case err := <-armed:
			require.NoError(t, err)
			stopped = true
		case <-op.done: // it passed before the trap was set
		}
	}
	stopped, err := pause.Stopped(p.present().child.Pid())
	require.NoError(t, err)
	require.True(t, stopped)
	require.ErrorIs(t, p.pause(patient(t)), errMissed, "one SIGCONT would end both stops")
	require.NoError(t, p.resume(patient(t)))
	_, err = op.wait(patient(t))
	require.NoError(t, err)
	requirePasses(t, s, "here")
}

func TestArm_IsDisarmedWhenItsTimeIsOver(t *testing.T) {
	s, p := newEnvironment(t)
	require.ErrorIs(t, p.arm(brief(t), "here", history.ThenKill), errMissed)
	requirePasses(t, s, "here")
}

// Two traps in one process would each take the other's event for their own.
func TestArm_OneTrapAtATime(t *testing.T) {
	s, p := newEnvironment(t)
	first, err := p.setTrap("here", 0, history.ThenKill)
	require.NoError(t, err)
	require.ErrorIs(t, p.arm(patient(t), "there", history.ThenPause), errMissed)
	requirePasses(t, s, "there")
	op := pass(t, s, "here")
	require.NoError(t, first.sprung(patient(t), nil))
	_, err = op.wait(patient(t))
	require.ErrorIs(t, err, errProcessEnded)
	require.NoError(t, p.start(patient(t)))
	require.NoError(t, p.crashes(), "the run killed it")
	require.ErrorIs(t, p.arm(brief(t), "there", history.ThenPause), errMissed)
}

// The trap's process was killed; the present one has no trap.
func TestArm_IsMissedWhenItsProcessIsKilled(t *testing.T) {
	s, p := newEnvironment(t)
	set, err := p.setTrap("here", 0, history.ThenKill)
	require.NoError(t, err)
	require.NoError(t, p.crash())
	require.NoError(t, p.start(patient(t)))
	require.ErrorIs(t, set.sprung(patient(t), nil), errMissed)
	requirePasses(t, s, "here")
}

func TestProcess_CrashesDifferFromKills(t *testing.T) {
	for _, how := range []string{"exit", "panic"} {
		s, p := newEnvironment(t)
		_, err := pass(t, s, how).wait(patient(t))
		require.ErrorIs(t, err, errProcessEnded)
		require.NoError(t, p.stop())
		require.ErrorContains(t, p.crashes(), "w0 ended by itself")
		if how == "panic" {
			require.ErrorContains(t, p.crashes(), "at the disco")
		}
	}
	_, p := newEnvironment(t)
	require.NoError(t, p.crash())
	require.NoError(t, p.start(patient(t)))
	require.NoError(t, p.stop())
	require.NoError(t, p.crashes())
	require.NoError(t, p.start(patient(t)))
	require.NoError(t, syscall.Kill(p.present().child.Pid(), syscall.SIGKILL)) // not the run's doing
	<-p.present().ended
	require.ErrorContains(t, p.crashes(), "signal: killed")
}

// Faults of one worker may overlap.
func TestProcess_FaultsMayOverlap(t *testing.T) {
	s, p := newEnvironment(t)
	resume, err := p.stopTheWorld(patient(t))
	require.NoError(t, err)
	_, err = p.stopTheWorld(patient(t))
	require.ErrorIs(t, err, errMissed)
	unpause, err := pauseWorker(0, anywhere).inject(patient(t), s)
	require.NoError(t, err)
	_, err = pauseWorker(0, anywhere).inject(patient(t), s)
	require.ErrorIs(t, err, errMissed)
	revert, err := killWorker(0, anywhere).inject(patient(t), s)
	require.NoError(t, err, "it is stopped twice, and can be killed")
	require.NoError(t, resume(patient(t)))
	require.NoError(t, unpause(patient(t)))
	require.NoError(t, revert(patient(t)))
	requirePasses(t, s, "here")
	resume, err = p.stopTheWorld(patient(t))
	require.NoError(t, err)
	require.NoError(t, resume(patient(t)))
	requirePasses(t, s, "here")
	require.NoError(t, p.crashes())
}

// A fault is recorded, injected and reverted once. One that misses is no failure.
func TestPlay_RecordsInjectsAndRevertsEachFault(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		fails, failsToRevert error
		says                 string
		reverted             int
		recorded             []string
	}{
		"injected and reverted": {nil, nil, "", 1, []string{"injected noted w0", "reverted noted w0"}},
		"missed":                {fmt.Errorf("%w: it has gone", errMissed), nil, "", 0, []string{"note missed"}},
		"it fails":              {broken, nil, "chaos: noted w0: broken", 0, nil},
		"it stays":              {nil, broken, "chaos: reverting noted w0: broken", 1, []string{"injected noted w0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &environment{trace: history.NewTrace(history.NewRecorder(io.Discard))}
			injected, times := 0, 0
			noted := fault{"noted w0", func(context.Context, *environment) (reverted, error) {
				injected++
				return func(context.Context) error { times++; return c.failsToRevert }, c.fails
			}}
			err := s.play(patient(t), []step{{at: time.Millisecond, lasts: time.Millisecond, fault: noted}})
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			require.Equal(t, []int{1, c.reverted}, []int{injected, times})
			var recorded []string
			for _, e := range s.trace.Events() {
				recorded = append(recorded, string(e.Kind)+" "+e.Name)
			}
			require.Equal(t, c.recorded, recorded)
		})
	}
}
