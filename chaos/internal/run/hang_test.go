package run

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// hanging are workloads that only the bounds of a run detect.
func hanging() []code {
	return []code{
		{name: "hangs", operate: func(context.Context, *workload.Env, workload.Op) error { select {} }},
		{name: "hangs in the end", operate: func(_ context.Context, env *workload.Env, _ workload.Op) error {
			_, err := env.Pool.Acquire(context.Background()) // never released
			return err
		}},
	}
}

// short are bounds for workloads that hang.
var short = environment.Bounds{Operation: time.Second, Grace: time.Second, Close: 2 * time.Second, Run: time.Minute, Data: time.Minute}

// bad are workloads that a run detects within its usual bounds.
func bad() []code {
	return []code{
		{name: "panics", operate: func(context.Context, *workload.Env, workload.Op) error {
			go panic("of the workload's own")
			select {}
		}},
		{name: "exits", operate: func(context.Context, *workload.Env, workload.Op) error { os.Exit(0); return nil }},
		readsInput,
		{name: "never succeeds", operate: func(context.Context, *workload.Env, workload.Op) error { return errors.New("no") }},
		{
			name: "loses updates", operate: lose,
			check: func(ctx context.Context, db *pgxpool.Pool) error {
				var counted, done int
				if err := db.QueryRow(ctx, "select n, (select count(*) from done) from counter").Scan(&counted, &done); err != nil {
					return err
				}
				if counted != done {
					return errors.New("an update was lost")
				}
				return nil
			},
		},
		{
			name: "is found wrong", operate: func(context.Context, *workload.Env, workload.Op) error { return nil },
			check: func(context.Context, *pgxpool.Pool) error { return errors.New("as its check says") },
		},
	}
}

// readsInput reads all that there is to be read, and then never succeeds.
var readsInput = code{name: "reads input", operate: func(context.Context, *workload.Env, workload.Op) error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return errors.New("it has ended")
}}

// A worker that the code under test crashes says nothing about a control.
func TestRun_AControlsCrashIsAnErrorOfTheWorkload(t *testing.T) {
	t.Parallel()
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	for _, w := range bad() {
		if w.name != "panics" && w.name != "exits" {
			continue
		}
		_, err := task{scenario: scenario.Scenario{Name: "calm"}, workload: prepared{w}, group: "no-lock", seed: 1, bounds: environment.UsualBounds}.run(patient(t), l, t.TempDir())
		require.ErrorIs(t, err, workload.ErrWorkload, w.name)
		require.ErrorContains(t, err, "under the control no-lock")
		require.ErrorContains(t, err, "ended by itself")
	}
}

// A control that hangs is not red: only a violation of its data is.
func TestRun_AControlIsRedByItsDataNotByAHang(t *testing.T) {
	t.Parallel()
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	hang := hanging()[0]
	run := func(w code, bounds environment.Bounds) *result.Run {
		r, err := task{scenario: scenario.Scenario{Name: "calm"}, workload: prepared{w}, group: "etcd-mutex", seed: 1, faults: true, bounds: bounds}.run(patient(t), l, t.TempDir())
		require.NoError(t, err)
		require.Equal(t, result.Violated, r.Verdict)
		return r
	}
	r := run(hang, short)
	require.Contains(t, r.Wrong, "it hangs")
	require.False(t, r.Red(), r.Reason)
	lost := code{name: "is found wrong", operate: func(context.Context, *workload.Env, workload.Op) error { return nil }, check: func(context.Context, *pgxpool.Pool) error { return errors.New("as its check says") }}
	r = run(lost, environment.UsualBounds)
	require.Equal(t, "as its check says", r.Failed)
	require.True(t, r.Red(), r.Reason)
}

func TestBreaks_ProgressIfThatIsTheFlaw(t *testing.T) {
	require.Equal(t, []string{check.Progress}, breaks("redis-setnx-expire"))
	require.Equal(t, check.OfData(), breaks("etcd-mutex"))
}

// lose counts its operation, and writes the counter without reading it.
func lose(ctx context.Context, env *workload.Env, op workload.Op) error {
	_, err := env.Pool.Exec(ctx, "with d as (insert into done values ($1)) update counter set n = 1", op.ID)
	return err
}

// A failure of the code under test is a violation, never one of the environment.
func TestRun_CodeThatCrashesOrIsWrongIsViolated(t *testing.T) {
	t.Parallel()
	requireViolated(t, bad(), environment.UsualBounds, map[string]string{
		"panics": "of the workload's own", "exits": "ended by itself", "reads input": "it has ended",
		"never succeeds": "no operation succeeded", "loses updates": "an update was lost", "is found wrong": "as its check says",
	})
}

func TestRun_CodeThatHangsIsViolated(t *testing.T) {
	t.Parallel()
	requireViolated(t, hanging(), short, map[string]string{"hangs": "it hangs", "hangs in the end": "did not end within"})
}

// requireViolated runs workloads; each run has to be violated and say why.
func requireViolated(t *testing.T, workloads []code, bounds environment.Bounds, says map[string]string) {
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			r, err := task{scenario: scenario.Scenario{Name: "calm"}, workload: prepared{w}, group: result.Fenced, seed: 1, bounds: bounds}.run(patient(t), l, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, result.Violated, r.Verdict, r.Reason)
			require.Contains(t, r.Reason+examples(r), says[w.name])
		})
	}
}

// A run that doesn't end hangs, even if no operation does.
func TestRun_ThatIsNotOverInTimeIsViolated(t *testing.T) {
	t.Parallel()
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	endless := scenario.Scenario{Name: "endless", Script: func(ctx context.Context, _ scenario.Environment) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	bounds := environment.UsualBounds
	bounds.Run = time.Second
	r, err := task{scenario: endless, workload: passer, group: result.Fenced, seed: 1, bounds: bounds}.run(patient(t), l, t.TempDir())
	require.NoError(t, err)
	require.Equal(t, result.Violated, r.Verdict, r.Reason)
	require.Contains(t, examples(r), "it hangs: the run was not over after 1s")
}

func examples(r *result.Run) (all string) {
	for _, f := range r.Findings {
		if f.Status == check.Violated {
			for _, e := range f.Examples {
				all += e + "\n"
			}
		}
	}
	return all
}

// prepared has the tables of lose.
type prepared struct{ code }

func (prepared) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, "create table counter (n int); insert into counter values (0); create table done (op text)")
	return err
}
