package chaos

import (
	"context"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/guard"
)

// acting is a workload whose operations do just this.
type acting struct {
	named
	act func(env *Env) error
}

func (w acting) Operate(_ context.Context, env *Env, _ Op) error { return w.act(env) }

// operated is what a worker tells of one operation of a workload.
func operated(t *testing.T, act func(env *Env) error) history.Event {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	w := &worker{spec: spec{Worker: "w0"}, workload: acting{named{"good", []string{"r"}}, act}, envs: []*Env{{}}, history: history.NewRecorder(in)}
	w.operate(t.Context(), Op{ID: "op", Resource: "r"}, time.Minute)
	require.NoError(t, in.Close())
	var ends history.Event
	require.NoError(t, history.Read(out, func(e history.Event) error { ends = e; return nil }))
	return ends
}

func rethrow() {
	if v := recover(); v != nil {
		panic(v)
	}
}

func TestOperate_PanicIsNamedAndHasNoOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		act  func(env *Env) error
		says string
	}{
		"panic":     {func(*Env) error { panic("nobody expects this") }, "Operate panicked: nobody expects this, in github.com/fencekit/fencekit/chaos.TestOperate_Panic"},
		"passed on": {func(*Env) error { defer rethrow(); panic("this") }, "in github.com/fencekit/fencekit/chaos.TestOperate_Panic"},
		"a nil Guard": {func(env *Env) error {
			return guard.Do(context.Background(), env.Guard, "r", func(context.Context, pgx.Tx) error { return nil })
		}, "Operate used Env.Guard, which a control doesn't have: fence: invalid argument: nil Guard"},
		"its own line": {func(*Env) error { return (*noOutcome)(nil).fail() }, "(no_outcome_test.go:"},
		"Goexit":       {func(*Env) error { runtime.Goexit(); return nil }, "Operate ended its goroutine (runtime.Goexit)"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := operated(t, c.act)
			require.Equal(t, history.Unknown, ends.Kind)
			require.Equal(t, classNoOutcome, ends.Class)
			require.Contains(t, ends.Error, c.says)
		})
	}
}

func (e *noOutcome) fail() error { e.how = "nil"; return e }

func TestUnfit_IsTheWorkload(t *testing.T) {
	s := &Stage{Group: result.Fenced, workload: named{name: "good"}, story: &story{recorder: history.NewRecorder(io.Discard)}}
	s.story.tell(history.Event{Kind: history.Unknown, Process: "w1", Op: "op1", Class: "unknown outcome"})
	require.NoError(t, s.unfit())
	s.story.tell(history.Event{Kind: history.Unknown, Process: "w2", Op: "op2", Class: classNoOutcome, Error: "Operate panicked: this"})
	s.story.tell(history.Event{Kind: history.Unknown, Process: "w3", Op: "op3", Class: classNoOutcome, Error: "Operate panicked: that"})
	err := s.unfit()
	require.EqualError(t, err, `chaos: 2 operations of workload "good" had no outcome; the first was op2: Operate panicked: this; for its stack see w2.log`)
}

// What is wrong with the code under test is a violation, and what keeps it from being
// tested no environment that isn't ready.
func TestRun_TellsAWorkloadsFaultsFromTheEnvironments(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, w Workload, group string) (*result.Suite, error) {
		t.Parallel()
		return Run(t.Context(), Config{Workload: w, Scenarios: []string{"stop-the-world"}, Groups: []string{group}, Dir: t.TempDir()})
	}
	t.Run("it panics", func(t *testing.T) {
		suite, err := run(t, panicking{}, result.Fenced)
		require.NoError(t, err)
		require.Len(t, suite.Runs, 1)
		require.Equal(t, result.Violated, suite.Runs[0].Verdict)
		require.Contains(t, suite.Runs[0].Wrong, `of workload "panicking" had no outcome; the first was w`)
		require.Contains(t, suite.Runs[0].Wrong, "Operate panicked: nobody expects this, in github.com/fencekit/fencekit/chaos.panicking.Operate (workloads_test.go:")
	})
	t.Run("it panics under a control", func(t *testing.T) {
		_, err := run(t, panicking{}, "etcd-mutex")
		require.ErrorIs(t, err, ErrWorkload)
		require.NotErrorIs(t, err, ErrEnvironment)
		require.ErrorContains(t, err, "under the control etcd-mutex: there Env.Guard and Env.Locker are nil")
	})
	t.Run("its Prepare fails", func(t *testing.T) {
		_, err := run(t, unprepared{}, result.Fenced)
		require.ErrorIs(t, err, ErrWorkload)
		require.NotErrorIs(t, err, ErrEnvironment)
		require.EqualError(t, err, `stop-the-world, fenced, seed 1: chaos: the workload can't be run: Prepare of "unprepared": ERROR: relation "nowhere" does not exist (SQLSTATE 42P01)`)
	})
}
