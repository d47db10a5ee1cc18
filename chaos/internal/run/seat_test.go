package run

import (
	"context"
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
	"github.com/fencekit/fencekit/internal/test/pause"
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

// newEnvironment makes an environment with one worker and no servers.
func newEnvironment(t *testing.T) (*environment, *seat) {
	t.Helper()
	s := &environment{Task: Task{Faults: true, bounds: usualBounds}, trace: history.NewTrace(io.Discard)}
	p := &seat{trace: s.trace, bounds: usualBounds, log: filepath.Join(t.TempDir(), "w0.log"), spec: worker.Spec{
		Worker: "w0", Workload: passer{}.Name(), Group: check.Fenced, Prefix: "test", Within: time.Minute,
		Servers: worker.Servers{TTL: worker.TTL, Etcd: []string{"http://127.0.0.1:1"}, Postgres: "postgres://nobody@127.0.0.1:1/none"},
	}}
	s.workers = []*seat{p}
	require.NoError(t, p.start(patient(t)))
	t.Cleanup(func() { require.NoError(t, p.kill()) })
	return s, p
}

func requirePasses(t *testing.T, s *environment, point string) {
	t.Helper()
	e, err := s.finish(patient(t), 0, worker.Op{Resource: point}, worker.Command{})
	require.NoError(t, err)
	require.Equal(t, history.OK, e.Kind, e.Error)
}

// A process that has ended never answers: waiting for it would hang.
func TestProcess_ThatHasEndedIsMissed(t *testing.T) {
	s, p := newEnvironment(t)
	requirePasses(t, s, "print") // what a workload prints is no event
	require.Contains(t, p.lastOutput(), "what a workload prints")
	revert, err := killWorker(0, anywhere).inject(patient(t), s)
	require.NoError(t, err)
	require.ErrorIs(t, p.awaitStopped(), errMissed)
	_, err = s.finish(patient(t), 0, worker.Op{Resource: "here"}, worker.Command{})
	require.ErrorIs(t, err, errProcessEnded)
	require.ErrorIs(t, s.endLoad(patient(t)), errProcessEnded)
	require.NoError(t, revert(patient(t)))
	requirePasses(t, s, "here")
	require.NoError(t, p.stop())
	for _, f := range []fault{pauseWorker(0, anywhere), pauseWorker(0, "here"), killWorker(0, anywhere)} {
		_, err = f.inject(patient(t), s)
		require.ErrorIs(t, err, errMissed, f.name)
	}
	require.NoError(t, p.crashes())
}

func TestOperateTo_StopsAtThePointUntilResumed(t *testing.T) {
	s, p := newEnvironment(t)
	op, sprung, err := s.operateTo(patient(t), 0, worker.Op{Resource: "here"}, "here", 0, history.ThenPause)
	require.NoError(t, err)
	require.True(t, sprung)
	stopped, err := pause.Stopped(p.child.Pid())
	require.NoError(t, err)
	require.True(t, stopped)
	require.NoError(t, p.resume(patient(t)))
	_, err = op.wait(patient(t))
	require.NoError(t, err)
	requirePasses(t, s, "here")

	// An operation that ends first, and a fault whose time is over, leave no trap.
	_, sprung, err = s.operateTo(patient(t), 0, worker.Op{Resource: "elsewhere"}, "here", 0, history.ThenKill)
	require.NoError(t, err)
	require.False(t, sprung)
	_, err = killWorker(0, "here").inject(brief(t), s)
	require.ErrorIs(t, err, errMissed)
	requirePasses(t, s, "here")

	op, sprung, err = s.operateTo(patient(t), 0, worker.Op{Resource: "here"}, "here", 0, history.ThenKill)
	require.NoError(t, err)
	require.True(t, sprung)
	_, err = op.wait(patient(t))
	require.ErrorIs(t, err, errProcessEnded)
	require.NoError(t, p.start(patient(t)))
	require.NoError(t, p.crashes(), "the run killed it")
}

func TestProcess_CrashesDifferFromKills(t *testing.T) {
	for how, says := range map[string]string{"exit": "w0 ended by itself", "panic": "at the disco", "": "signal: killed"} {
		s, p := newEnvironment(t)
		if how == "" { // not the run's doing
			require.NoError(t, syscall.Kill(p.child.Pid(), syscall.SIGKILL))
			<-p.ended
		} else {
			_, err := s.finish(patient(t), 0, worker.Op{Resource: how}, worker.Command{})
			require.ErrorIs(t, err, errProcessEnded)
		}
		require.NoError(t, p.stop())
		require.NoError(t, p.start(patient(t)))
		require.ErrorContains(t, p.crashes(), says, "of an earlier process")
	}
}

// One resume would end two stops, and each of two traps would take the other's event for its own.
func TestProcess_HasOneFaultAtATime(t *testing.T) {
	s, p := newEnvironment(t)
	for _, f := range []fault{pauseWorker(0, anywhere), killWorker(0, anywhere)} {
		revert, err := f.inject(patient(t), s)
		require.NoError(t, err)
		for _, other := range []fault{pauseWorker(0, anywhere), killWorker(0, "here")} {
			_, err = other.inject(patient(t), s)
			require.ErrorIs(t, err, errMissed)
		}
		require.NoError(t, revert(patient(t)))
		requirePasses(t, s, "here")
	}
	require.NoError(t, p.crashes())
}
