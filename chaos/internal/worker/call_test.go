package worker

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// acting is a workload whose operations call act.
type acting struct {
	workload.Workload
	act func(env *workload.Env) error
}

func (w acting) Operate(_ context.Context, env *workload.Env, _ workload.Op) error { return w.act(env) }

// operated returns the last event that a worker records of one operation.
func operated(t *testing.T, act func(env *workload.Env) error) history.Event {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	w := &worker{spec: Spec{Worker: "w0"}, workload: acting{act: act}, envs: []*workload.Env{{}}, history: history.NewRecorder(in)}
	w.operate(t.Context(), workload.Op{ID: "op", Resource: "r"}, time.Minute)
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
		act  func(env *workload.Env) error
		says string
	}{
		"panic":     {func(*workload.Env) error { panic("unexpected") }, "Operate panicked: unexpected, in github.com/fencekit/fencekit/chaos/internal/worker.TestOperate_Panic"},
		"passed on": {func(*workload.Env) error { defer rethrow(); panic("this") }, "in github.com/fencekit/fencekit/chaos/internal/worker.TestOperate_Panic"},
		"a nil Guard": {func(env *workload.Env) error {
			return guard.Do(context.Background(), env.Guard, "r", func(context.Context, pgx.Tx) error { return nil })
		}, "Operate used Env.Guard, which a control doesn't have: fence: invalid argument: nil Guard"},
		"its own line": {func(*workload.Env) error { return (*noOutcome)(nil).fail() }, "(call_test.go:"},
		"Goexit":       {func(*workload.Env) error { runtime.Goexit(); return nil }, "Operate ended its goroutine (runtime.Goexit)"},
	} {
		t.Run(name, func(t *testing.T) {
			ends := operated(t, c.act)
			require.Equal(t, history.Unknown, ends.Kind)
			require.Equal(t, ClassNoOutcome, ends.Class)
			require.Contains(t, ends.Error, c.says)
		})
	}
}

func (e *noOutcome) fail() error { e.how = "nil"; return e }
