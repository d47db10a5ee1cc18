package worker

import (
	"os"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv"

	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// stopsAt returns the point at which a process stops that is armed for a point, and skips
// so many awaits. Here the recording of the event ends it.
func stopsAt(skip int, point string, do func(gate)) (at string) {
	type stopped struct{ at string }
	p := &points{record: func(e history.Event) { panic(stopped{e.Point}) }}
	p.arm(point, skip, fault.ThenPause)
	defer func() {
		if there, ok := recover().(stopped); ok {
			at = there.at
		}
	}()
	do(gate{p})
	return ""
}

func TestGate_CountsWhatIsSentAndAnswered(t *testing.T) {
	exchange := func(g gate) {
		far, near := net.Pipe()
		defer near.Close()
		go func() {
			defer far.Close()
			for range 2 {
				_, _ = far.Read(make([]byte, 100))
				_, _ = far.Write([]byte("done"))
			}
		}()
		c := gatedConn{near, g}
		for _, text := range []string{"select 1", "Q\x00commit\x00"} {
			_, _ = c.Write([]byte(text))
			_, _ = c.Read(make([]byte, 100))
		}
		_ = g.etcd("/etcdserverpb.KV/Txn")
		if _, err := c.Read(make([]byte, 100)); err != io.EOF {
			panic(err)
		}
	}
	for skip, want := range []string{
		"await: sent to Postgres", "await: answered by Postgres", "await: sent to Postgres", "await: answered by Postgres",
		"await: before Txn of etcd", "await: after Txn of etcd", "",
	} {
		require.Equal(t, want, stopsAt(skip, PointAwait, exchange), skip)
	}
	require.Equal(t, workload.PointCommit, stopsAt(0, workload.PointCommit, exchange))
	require.Empty(t, stopsAt(0, workload.PointRead, exchange))
}

// etcd makes a call that succeeds.
func (g gate) etcd(method string) error {
	return g.unary(context.Background(), method, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error { return nil })
}

func TestPoints_AnArmedPointTriggersOnce(t *testing.T) {
	reached := func(name string) func(gate) { return func(g gate) { g.points.reach(name) } }
	require.Equal(t, "here", stopsAt(0, "here", reached("here")))
	require.Empty(t, stopsAt(0, "here", reached("there")))
	require.Empty(t, stopsAt(0, "here", func(g gate) { g.points.disarm(); g.points.reach("here") }))
	require.Empty(t, stopsAt(0, "here", func(g gate) { g.points.arm("there", 0, fault.ThenPause); g.points.reach("here") }))
	require.Empty(t, stopsAt(0, "here", func(g gate) { g.points.await("anything") }))
	p := &points{}
	require.False(t, p.disarm())
	p.arm("here", 0, fault.ThenPause)
	require.True(t, p.disarm())
	require.False(t, p.disarm())
}

func TestCommit_IsFoundInWhatIsSent(t *testing.T) {
	for text, is := range map[string]bool{
		"commit": true, "select fence.seal('x'); COMMIT": true, "Q\x00\x00commit\x00": true,
		"set local synchronous_commit = on": false, "committed": false, "select 1": false,
	} {
		require.Equal(t, is, commit.MatchString(text), text)
	}
}

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
	w := &worker{spec: Spec{Worker: "w0"}, workload: acting{act: act}, env: &workload.Env{}, history: history.NewRecorder(in)}
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
		"its own line": {func(*workload.Env) error { return (*noOutcome)(nil).fail() }, "(worker_test.go:"},
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
