package run

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

func TestMain(m *testing.M) {
	var all []workload.Workload
	for _, c := range codes {
		all = append(all, c)
	}
	worker.Reexec(all...)
	testenv.Main(m)
}

// code is a workload that does one thing, for tests of the engine.
type code struct {
	name    string
	prepare string // SQL
	operate func(ctx context.Context, env *workload.Env, op workload.Op) error
	check   error // what Check says
}

func (c code) Name() string                               { return c.name }
func (code) Resources() []string                          { return []string{"sku"} }
func (c code) Check(context.Context, *pgxpool.Pool) error { return c.check }
func (c code) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, c.prepare)
	return err
}

func (c code) Operate(ctx context.Context, env *workload.Env, op workload.Op) error {
	return c.operate(ctx, env, op)
}

func nothing(context.Context, *workload.Env, workload.Op) error { return nil }

// codes are the workloads of these tests.
var codes = map[string]code{
	"passes":  {name: "passes", operate: nothing},
	"hangs":   {name: "hangs", operate: func(context.Context, *workload.Env, workload.Op) error { select {} }},
	"crashes": {name: "crashes", operate: func(context.Context, *workload.Env, workload.Op) error { go panic("of the workload's own"); select {} }},
	"panics":  {name: "panics", operate: func(context.Context, *workload.Env, workload.Op) error { panic("unexpected") }},
	"fails":   {name: "fails", operate: func(context.Context, *workload.Env, workload.Op) error { return errors.New("no") }},
	"lies":    {name: "lies", operate: nothing, check: errors.New("an update was lost")},
	"unready": {name: "unready", prepare: "insert into nowhere values (1)", operate: nothing},
}

// patient is a context for what succeeds, however long a slow machine takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// short are bounds for workloads that hang.
var short = environment.Bounds{Operation: time.Second, Grace: time.Second, Close: 2 * time.Second, Run: time.Minute, Data: time.Minute}

// perform does one run of a scenario without faults.
func perform(t *testing.T, servers *environment.Servers, sc scenario.Scenario, name, group string, bounds environment.Bounds) (*result.Run, error) {
	t.Helper()
	sc.Name, sc.Workers = "calm", 1
	return task{scenario: sc, workload: codes[name], group: group, seed: 1, bounds: bounds}.run(patient(t), servers, t.TempDir())
}

func newServers(t *testing.T) *environment.Servers {
	servers := environment.NewServers()
	t.Cleanup(func() { require.NoError(t, servers.Close(context.Background())) })
	return servers
}

func violations(r *result.Run) (all string) {
	for _, f := range r.Findings {
		if f.Status == check.Violated {
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
		bounds      environment.Bounds
		says        string
		red         bool
		err         error
	}{
		{"crashes", result.Fenced, environment.UsualBounds, "of the workload's own", false, nil},
		{"panics", result.Fenced, environment.UsualBounds, "Operate panicked: unexpected, in github.com/fencekit/fencekit/chaos/internal/run.", false, nil},
		{"hangs", result.Fenced, short, "it hangs", false, nil},
		{"fails", result.Fenced, environment.UsualBounds, "no operation succeeded", false, nil},
		{"lies", result.Fenced, environment.UsualBounds, "an update was lost", false, nil},
		{"crashes", "no-lock", environment.UsualBounds, "under the control no-lock", false, workload.ErrWorkload},
		{"unready", "no-lock", environment.UsualBounds, "Prepare of \"unready\"", false, workload.ErrWorkload},
		{"hangs", "no-lock", short, "it hangs", false, nil},
		{"lies", "no-lock", environment.UsualBounds, "an update was lost", true, nil},
	} {
		r, err := perform(t, servers, scenario.Scenario{}, c.code, c.group, c.bounds)
		require.ErrorIs(t, err, c.err)
		if c.err != nil {
			require.ErrorContains(t, err, c.says)
			continue
		}
		require.Equal(t, result.Violated, r.Verdict, r.Reason)
		require.Contains(t, violations(r), c.says)
		if c.group != result.Fenced {
			require.Equal(t, c.red, r.Red(), r.Reason)
		}
	}
	bounds := environment.UsualBounds
	bounds.Run = time.Second
	r, err := perform(t, servers, scenario.Scenario{Script: func(ctx context.Context, _ *environment.Environment) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}, "passes", result.Fenced, bounds)
	require.NoError(t, err)
	require.Contains(t, violations(r), "it hangs: the run was not over after 1s", "though no operation does")
}

// A workload that sends no COMMIT fails at once, not when the run's time is over.
func TestLostAnswer_SaysThatAnOperationSendsNoCommit(t *testing.T) {
	t.Parallel()
	all, err := Config{Scenarios: []string{"lost-answer"}}.scenarios()
	require.NoError(t, err)
	r, err := task{scenario: all[0], workload: codes["passes"], group: result.Fenced, seed: 1, faults: true, bounds: environment.UsualBounds}.run(patient(t), newServers(t), t.TempDir())
	require.NoError(t, err)
	require.Contains(t, r.Wrong, "the operation ended without a COMMIT")
}

// stays is a fault that can't be reverted.
type stays struct{}

func (stays) String() string { return "stays w0" }

func (stays) Inject(context.Context, fault.Site) (func(context.Context) error, error) {
	return func(context.Context) error { return errors.New("it stays") }, nil
}

// A fault that can't be reverted is no verdict on the code under test.
func TestRun_WithoutItsEnvironmentIsAnError(t *testing.T) {
	t.Parallel()
	cfg, err := Config{Dir: t.TempDir()}.withDefaults()
	require.NoError(t, err)
	sc := scenario.Scenario{Name: "noted", Schedule: func(*rand.Rand) []fault.Step { return []fault.Step{{Fault: stays{}}} }}
	s := &suite{cfg: cfg, began: time.Now(), done: map[string]bool{}, rounds: &rounds{cfg: cfg, scenarios: []scenario.Scenario{sc}, groups: []string{result.Fenced}, seed: cfg.Seed}}
	require.NoError(t, s.open())
	s.work(patient(t))
	require.ErrorIs(t, s.failed, ErrEnvironment)
	require.ErrorContains(t, s.failed, "noted, fenced, seed 1: chaos: reverting stays w0: it stays")
	require.Empty(t, s.kept.Runs)
}

// twoRuns are the shortest ones.
func twoRuns(dir string) Config {
	return Config{Scenarios: []string{"late-commit"}, Groups: []string{result.Fenced}, Seeds: 2, ScriptSeeds: 2, Dir: dir}
}

// The finished runs of a suite that ended early are kept, and the unfinished one is done again.
func TestRun_ResumesWhatWasEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(patient(t))
	defer cancel()
	cfg := twoRuns(dir)
	cfg.Progress = func(p Progress) {
		if !p.Ended && p.Run.Seed == 2 {
			cancel()
		}
	}
	suite, err := Run(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, suite.Reason, "1 of 2 runs that were asked for are missing, the first late-commit/fenced/seed-2")
	half := filepath.Join(dir, "late-commit", result.Fenced, "seed-2")
	require.NoError(t, os.MkdirAll(half, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(half, "w0.log"), []byte("half"), 0o644))

	cfg = twoRuns(dir)
	_, err = Run(t.Context(), cfg)
	require.ErrorIs(t, err, workload.ErrConfig)
	other := cfg
	other.Resume, other.Workload = true, codes["passes"]
	_, err = Run(t.Context(), other)
	require.ErrorContains(t, err, `are of workload "stock", not "passes"`)
	cfg.Resume = true
	var begun []string
	cfg.Progress = func(p Progress) {
		if !p.Ended {
			begun = append(begun, p.Run.Dir)
		}
	}
	first := suite.Runs[0].Started
	suite, err = Run(patient(t), cfg)
	require.NoError(t, err)
	require.Equal(t, []string{"late-commit/fenced/seed-2"}, begun)
	require.True(t, first.Equal(suite.Runs[0].Started))
	require.Equal(t, result.Pass, suite.Runs[1].Verdict, suite.Runs[1].Reason)
	log, err := os.ReadFile(filepath.Join(half, "w0.log"))
	require.NoError(t, err)
	require.NotContains(t, string(log), "half", "the log of an earlier process")
}

// Two suites in one directory would each take the other's runs for unfinished. A directory is
// free once its suite has ended, also while a child process that is being started still has
// its descriptor.
func TestRun_OneSuiteAtATimeInADirectory(t *testing.T) {
	dir := t.TempDir()
	free, err := occupy(dir)
	require.NoError(t, err)
	_, err = Run(t.Context(), twoRuns(dir))
	require.ErrorIs(t, err, workload.ErrConfig)
	require.ErrorContains(t, err, "another suite is writing to "+dir)
	child.Inherit(t, dir)
	require.NoError(t, free())
	free, err = occupy(dir)
	require.NoError(t, err)
	require.NoError(t, free())
}

// taken are the directories of the runs of a Config, in order.
func taken(t *testing.T, cfg Config, each func()) (dirs []string, r *rounds) {
	t.Helper()
	cfg.Dir = "unused"
	cfg, err := cfg.withDefaults()
	require.NoError(t, err)
	r, err = newRounds(cfg)
	require.NoError(t, err)
	for next, ok := r.next(); ok; next, ok = r.next() {
		dirs = append(dirs, next.dir())
		each()
	}
	return dirs, r
}

// A suite that ends early has done as many seeds of each scenario; scripts and controls run
// with the first seeds alone, and each control once without faults.
func TestRounds_AllScenariosWithOneSeedThenWithTheNext(t *testing.T) {
	cfg := Config{Scenarios: []string{"pauses", "partitions", "lost-lock"}, Groups: []string{result.Fenced, "etcd-mutex", "postgres-advisory"}, Seed: 5, Seeds: 3}
	dirs, r := taken(t, cfg, func() {})
	require.Equal(t, []string{
		"pauses/fenced/seed-5", "pauses/etcd-mutex/seed-5", "pauses/etcd-mutex/seed-5-calm",
		"partitions/fenced/seed-5", "partitions/etcd-mutex/seed-5",
		"lost-lock/fenced/seed-5", "lost-lock/postgres-advisory/seed-5", "lost-lock/postgres-advisory/seed-5-calm",
		"pauses/fenced/seed-6", "partitions/fenced/seed-6", "pauses/fenced/seed-7", "partitions/fenced/seed-7",
	}, dirs)
	require.Equal(t, dirs, r.wanted())
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Scenarios: []string{"pauses", "crashes"}, Groups: []string{result.Fenced}, Duration: 10 * time.Second}
		dirs, r := taken(t, cfg, func() { time.Sleep(4 * time.Second) })
		require.Equal(t, []string{"pauses/fenced/seed-1", "crashes/fenced/seed-1", "pauses/fenced/seed-2"}, dirs)
		require.Equal(t, dirs[:2], r.wanted())
	})
	dirs, _ = taken(t, Config{Scenarios: []string{"lost-lock"}, Groups: []string{result.Fenced}, Duration: time.Hour, ScriptSeeds: 2}, func() {})
	require.Len(t, dirs, 2, "later seeds have no runs")
}

func TestConfig_SaysWhatIsWrong(t *testing.T) {
	for says, cfg := range map[string]Config{
		"Dir is missing":                 {},
		`"pausen" matches none`:          {Dir: "d", Scenarios: []string{"pauses", "pausen"}},
		"of the groups: fenced, no-lock": {Dir: "d", Groups: []string{"mutex"}},
		"with none of these controls":    {Dir: "d", Scenarios: []string{"stop-the-world"}, Groups: []string{"no-lock"}},
		"Seeds is -1":                    {Dir: "d", Seeds: -1},
		"Duration is -1s":                {Dir: "d", Duration: -time.Second},
	} {
		if cfg.Dir != "" {
			cfg.Dir = t.TempDir()
		}
		_, err := Run(t.Context(), cfg)
		require.ErrorIs(t, err, workload.ErrConfig, says)
		require.ErrorContains(t, err, says)
	}
}
