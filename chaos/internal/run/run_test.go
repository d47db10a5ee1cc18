package run

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) {
	var all []worker.Workload
	for _, c := range codes {
		all = append(all, c)
	}
	worker.Reexec(append(all, passer{}, worker.Stock{})...)
	testenv.Main(m)
}

// code is a workload that does one thing, for tests of the engine.
type code struct {
	name    string
	prepare string // SQL
	operate func(ctx context.Context, env *worker.Env, op worker.Op) error
	check   error // what Check says
}

func (c code) Name() string                               { return c.name }
func (code) Resources() []string                          { return []string{"sku"} }
func (c code) Check(context.Context, *pgxpool.Pool) error { return c.check }
func (c code) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, c.prepare)
	return err
}

func (c code) Operate(ctx context.Context, env *worker.Env, op worker.Op) error {
	return c.operate(ctx, env, op)
}

func succeeds(context.Context, *worker.Env, worker.Op) error { return nil }

func guarded(sql string) func(context.Context, *worker.Env, worker.Op) error {
	return func(ctx context.Context, env *worker.Env, op worker.Op) error {
		return guard.Do(ctx, env.Guard, op.Resource, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		})
	}
}

// codes are the workloads of these tests.
var codes = map[string]code{
	"passes":  {name: "passes", operate: succeeds},
	"hangs":   {name: "hangs", operate: func(context.Context, *worker.Env, worker.Op) error { select {} }},
	"crashes": {name: "crashes", operate: func(context.Context, *worker.Env, worker.Op) error { go panic("of the workload's own"); select {} }},
	"panics":  {name: "panics", operate: func(context.Context, *worker.Env, worker.Op) error { panic("unexpected") }},
	"fails":   {name: "fails", operate: func(context.Context, *worker.Env, worker.Op) error { return errors.New("no") }},
	"lies":    {name: "lies", operate: succeeds, check: errors.New("an update was lost")},
	"idles":   {name: "idles", operate: guarded("select 1")},
	"writes":  {name: "writes", prepare: "create table t (n int)", operate: guarded("insert into t values (1)")},
	"unready": {name: "unready", prepare: "insert into nowhere values (1)", operate: succeeds},
}

// patient is a context for what succeeds, however long a slow machine takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// short are bounds for workloads that hang.
var short = bounds{operation: time.Second, grace: time.Second, close: 2 * time.Second, run: time.Minute, data: time.Minute}

// perform does one run of a scenario without faults.
func perform(t *testing.T, servers *Servers, sc Scenario, name, group string, bounds bounds) (*check.Run, error) {
	t.Helper()
	sc.Name, sc.workers = "calm", 1
	return Task{Scenario: sc, Workload: codes[name], Group: group, Seed: 1, bounds: bounds}.Do(patient(t), servers, t.TempDir())
}

func newServers(t *testing.T) *Servers {
	servers := &Servers{}
	t.Cleanup(func() { require.NoError(t, servers.Close(context.Background())) })
	return servers
}

func violations(r *check.Run) (all string) {
	for _, f := range r.Findings {
		if f.Status == check.Flagged {
			all += strings.Join(f.Examples, "\n")
		}
	}
	return all
}

// A failure of the code under test is a violation. Under a control a crash says nothing of the
// control, and only a violation of the data makes it red.
func TestRun_CodeThatCrashesHangsOrIsWrong(t *testing.T) {
	t.Parallel()
	servers := newServers(t)
	for _, c := range []struct {
		code, group string
		bounds      bounds
		says        string
		red         bool
		err         error
	}{
		{"crashes", check.Fenced, usualBounds, "of the workload's own", false, nil},
		{"panics", check.Fenced, usualBounds, "panic: unexpected", false, nil},
		{"hangs", check.Fenced, short, "it hangs", false, nil},
		{"fails", check.Fenced, usualBounds, "no operation succeeded", false, nil},
		{"lies", check.Fenced, usualBounds, "an update was lost", false, nil},
		{"crashes", "no-lock", usualBounds, "under the control no-lock", false, worker.ErrWorkload},
		{"unready", "no-lock", usualBounds, "Prepare of \"unready\"", false, worker.ErrWorkload},
		{"hangs", "no-lock", short, "it hangs", false, nil},
		{"lies", "no-lock", usualBounds, "an update was lost", true, nil},
	} {
		r, err := perform(t, servers, Scenario{}, c.code, c.group, c.bounds)
		require.ErrorIs(t, err, c.err)
		if c.err != nil {
			require.ErrorContains(t, err, c.says)
			continue
		}
		require.Equal(t, check.Violated, r.Verdict, r.Reason)
		require.Contains(t, violations(r), c.says)
		if c.group != check.Fenced {
			require.Equal(t, c.red, r.Red(), r.Reason)
		}
	}
	bounds := usualBounds
	bounds.run = time.Second
	r, err := perform(t, servers, Scenario{script: func(_ *environment, ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}, "passes", check.Fenced, bounds)
	require.NoError(t, err)
	require.Contains(t, violations(r), "it hangs: the run was not over after 1s", "though no operation does")
}

// Where nothing is written, nothing can be lost.
func TestRun_ThatChangesNoRowProvesNothing(t *testing.T) {
	t.Parallel()
	servers := newServers(t)
	r, err := perform(t, servers, Scenario{}, "idles", check.Fenced, usualBounds)
	require.NoError(t, err)
	require.Equal(t, check.Inconclusive, r.Verdict, r.Reason)
	require.Contains(t, r.Reason, "none of their transactions changed a row")
	r, err = perform(t, servers, Scenario{}, "writes", check.Fenced, usualBounds)
	require.NoError(t, err)
	require.Equal(t, check.Pass, r.Verdict, r.Reason)
}

// A workload that sends no COMMIT fails at once, not when the run's time is over.
func TestLostAnswer_SaysThatAnOperationSendsNoCommit(t *testing.T) {
	t.Parallel()
	r, err := Task{Scenario: lostAnswer, Workload: codes["passes"], Group: check.Fenced, Seed: 1, Faults: true}.Do(patient(t), newServers(t), t.TempDir())
	require.NoError(t, err)
	require.Contains(t, r.Wrong, "the operation ended without a COMMIT")
}

// A fault that can't be injected, or not be reverted, is no verdict on the code under test.
func TestRun_WithoutItsEnvironmentIsAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for says, f := range map[string]func(context.Context, *environment) (reverted, error){
		"chaos: noted w0: broken": func(context.Context, *environment) (reverted, error) { return nil, broken },
		"chaos: reverting noted w0: broken": func(context.Context, *environment) (reverted, error) {
			return func(context.Context) error { return broken }, nil
		},
	} {
		sc := Scenario{Scenario: check.Scenario{Name: "noted"}, schedule: func(*rand.Rand) []step { return []step{{fault: fault{"noted w0", f}}} }}
		_, err := Task{Scenario: sc, Workload: codes["passes"], Group: check.Fenced, Seed: 1, Faults: true}.Do(patient(t), newServers(t), t.TempDir())
		require.ErrorContains(t, err, says)
	}
}

// A seed determines the schedule, and a schedule fits into a run.
func TestScenarios_TheSameForTheSameSeedAndShort(t *testing.T) {
	for _, s := range Scenarios {
		for seed := range uint64(100) {
			task := Task{Scenario: s, Workload: worker.Stock{}, Seed: seed}
			schedule := task.Result().Schedule
			require.Equal(t, schedule, task.Result().Schedule)
			require.Equal(t, s.schedule == nil, len(schedule) == 0)
			for _, step := range schedule {
				require.Less(t, step.At, window)
				require.LessOrEqual(t, step.At+step.For, window+5*time.Second, "%s %v", s.Name, step)
			}
		}
		require.NotEqual(t, s.schedule == nil, s.script == nil, s.Name)
	}
}
