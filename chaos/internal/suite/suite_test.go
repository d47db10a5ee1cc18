package suite

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) {
	worker.Reexec(worker.Stock{})
	testenv.Main(m)
}

// twoRuns are the shortest ones.
func twoRuns(dir string) Config {
	return Config{Scenarios: []string{"stalled-holder"}, Groups: []string{check.Fenced}, Seeds: 2, ScriptSeeds: 2, Dir: dir}
}

// A suite that is interrupted shows what it has done, and that the rest is missing. Its directory is its own.
func TestRun_SaysWhatAnInterruptionLeftOut(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := twoRuns(t.TempDir())
	cfg.Progress = func(p Progress) {
		if !p.Ended && p.Run.Seed == 2 {
			cancel()
		}
	}
	suite, err := Run(ctx, cfg)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, suite.Reason, "1 of 2 runs that were asked for are missing, the first stalled-holder/fenced/seed-2")
	kept, err := os.ReadFile(filepath.Join(cfg.Dir, "result.json"))
	require.NoError(t, err)
	require.Contains(t, string(kept), `"ended": "context canceled"`)
	_, err = Run(t.Context(), cfg)
	require.ErrorIs(t, err, worker.ErrConfig)
	require.ErrorContains(t, err, "take another directory")
}

// taken are the directories of the runs of a Config, in order.
func taken(t *testing.T, cfg Config, each func()) (dirs []string, p *plan) {
	t.Helper()
	cfg.Dir = "unused"
	cfg, err := cfg.withDefaults()
	require.NoError(t, err)
	p, err = planOf(cfg)
	require.NoError(t, err)
	for next := range p.tasks {
		dirs = append(dirs, next.Dir())
		each()
	}
	return dirs, p
}

// A suite that ends early has done as many seeds of each scenario; scripts and controls run
// with the first seeds alone, and each control once without faults.
func TestPlan_AllScenariosWithOneSeedThenWithTheNext(t *testing.T) {
	cfg := Config{Scenarios: []string{"pauses", "partitions", "lost-lock"}, Groups: []string{check.Fenced, "etcd-mutex", "postgres-advisory"}, Seed: 5, Seeds: 3}
	dirs, r := taken(t, cfg, func() {})
	require.Equal(t, []string{
		"pauses/fenced/seed-5", "pauses/etcd-mutex/seed-5", "pauses/etcd-mutex/seed-5-calm",
		"partitions/fenced/seed-5", "partitions/etcd-mutex/seed-5",
		"lost-lock/fenced/seed-5", "lost-lock/postgres-advisory/seed-5", "lost-lock/postgres-advisory/seed-5-calm",
		"pauses/fenced/seed-6", "partitions/fenced/seed-6", "pauses/fenced/seed-7", "partitions/fenced/seed-7",
	}, dirs)
	require.Equal(t, dirs, r.wanted())
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Scenarios: []string{"pauses", "crashes"}, Groups: []string{check.Fenced}, Duration: 10 * time.Second}
		dirs, r := taken(t, cfg, func() { time.Sleep(4 * time.Second) })
		require.Equal(t, []string{"pauses/fenced/seed-1", "crashes/fenced/seed-1", "pauses/fenced/seed-2"}, dirs)
		require.Equal(t, dirs[:2], r.wanted())
	})
	dirs, _ = taken(t, Config{Scenarios: []string{"lost-lock"}, Groups: []string{check.Fenced}, Duration: time.Hour, ScriptSeeds: 2}, func() {})
	require.Len(t, dirs, 2, "later seeds have no runs")
}

func TestConfig_SaysWhatIsWrong(t *testing.T) {
	for says, cfg := range map[string]Config{
		"Dir is missing":                 {},
		`"pausen" matches none`:          {Dir: "d", Scenarios: []string{"pauses", "pausen"}},
		"of the groups: fenced, no-lock": {Dir: "d", Groups: []string{"mutex"}},
		"with none of these controls":    {Dir: "d", Scenarios: []string{"crashes"}, Groups: []string{"no-lock"}},
		"Seeds is -1":                    {Dir: "d", Seeds: -1},
		"Duration is -1s":                {Dir: "d", Duration: -time.Second},
	} {
		if cfg.Dir != "" {
			cfg.Dir = t.TempDir()
		}
		_, err := Run(t.Context(), cfg)
		require.ErrorIs(t, err, worker.ErrConfig, says)
		require.ErrorContains(t, err, says)
	}
}
