package run

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

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

// A run has load and the faults that it records, observes both from outside, and passes
// only if everything that its scenario requires happened.
func TestRun_InjectsRecordsAndObserves(t *testing.T) {
	t.Parallel()
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	for name, c := range map[string]struct {
		faults   bool
		requires string
		injected int
		verdict  result.Verdict
	}{
		"with faults":              {true, "fault noted", 1, result.Pass},
		"without faults":           {false, "fault noted", 0, result.Pass},
		"without what it requires": {true, "fault of another kind", 1, result.Inconclusive},
	} {
		t.Run(name, func(t *testing.T) {
			f := noted{injected: new(atomic.Int32), reverted: new(atomic.Int32)}
			sc := scenario.Scenario{Name: "noted", Requires: []string{c.requires}, Schedule: func(*rand.Rand) []fault.Step { return once(f) }}
			r, err := task{scenario: sc, workload: stock.Stock{}, group: result.Fenced, seed: 1, faults: c.faults, bounds: environment.UsualBounds}.run(patient(t), l, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, c.verdict, r.Verdict, r.Reason)
			require.EqualValues(t, c.injected, f.injected.Load())
			require.EqualValues(t, c.injected, f.reverted.Load())
			require.Equal(t, c.injected, r.Hits["fault noted"])
			require.Greater(t, r.Counts.Operations, 3*len(stock.Stock{}.Resources()), "more than those of the last phase")
		})
	}
}

// A server that doesn't start, or a fault that can't be reverted, is no verdict on the code under test.
func TestRun_WithoutItsEnvironmentIsAnError(t *testing.T) {
	t.Run("a server that doesn't start", func(t *testing.T) {
		t.Setenv(pgserver.DSNVar, "postgres://nobody@127.0.0.1:1/none")
		suite, err := Run(patient(t), Config{Scenarios: []string{"late-commit"}, Groups: []string{result.Fenced}, Dir: t.TempDir()})
		require.ErrorIs(t, err, ErrEnvironment)
		require.NotErrorIs(t, err, workload.ErrWorkload)
		require.ErrorContains(t, err, "late-commit, fenced, seed 1: ")
		require.Empty(t, suite.Runs)
	})
	t.Run("a fault that stays", func(t *testing.T) {
		f := noted{nil, errors.New("it stays"), new(atomic.Int32), new(atomic.Int32)}
		cfg, err := Config{Dir: t.TempDir()}.withDefaults()
		require.NoError(t, err)
		sc := scenario.Scenario{Name: "noted", Schedule: func(*rand.Rand) []fault.Step { return once(f) }}
		s := &suite{cfg: cfg, began: time.Now(), done: map[string]bool{}, rounds: &rounds{cfg: cfg, scenarios: []scenario.Scenario{sc}, groups: []string{result.Fenced}, seed: cfg.Seed}}
		require.NoError(t, s.open())
		s.work(patient(t))
		require.ErrorIs(t, s.failed, ErrEnvironment)
		require.EqualError(t, s.failed, ErrEnvironment.Error()+": noted, fenced, seed 1: chaos: reverting noted w0: it stays")
		require.Empty(t, s.kept.Runs)
	})
}

// A run that is interrupted in its Check has no verdict, and its history is kept.
func TestRun_EndedInItsCheckHasNoVerdict(t *testing.T) {
	t.Parallel()
	l := environment.NewServers()
	defer func() { require.NoError(t, l.Close(context.Background())) }()
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(patient(t))
	w := code{name: passer.name, operate: passer.operate, check: func(ctx context.Context, _ *pgxpool.Pool) error {
		cancel(interrupted)
		<-ctx.Done()
		return ctx.Err()
	}}
	dir := t.TempDir()
	r, err := task{scenario: scenario.Scenario{Name: "calm"}, workload: w, group: result.Fenced, seed: 1, bounds: environment.UsualBounds}.run(ctx, l, dir)
	require.ErrorIs(t, err, interrupted)
	require.Nil(t, r)
	at := filepath.Join(dir, "calm", result.Fenced, "seed-1-calm")
	require.NoFileExists(t, filepath.Join(at, result.ResultFile))
	require.FileExists(t, filepath.Join(at, "w0.log"))
	file, err := os.Open(filepath.Join(at, result.HistoryFile))
	require.NoError(t, err)
	defer file.Close()
	events := 0
	require.NoError(t, history.Read(file, func(history.Event) error { events++; return nil }))
	require.NotZero(t, events)
}
