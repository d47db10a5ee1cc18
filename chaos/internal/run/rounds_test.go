package run

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// taken are the directories of the runs of a Config, in order, and at most so many.
func taken(t *testing.T, cfg Config, most int, each func()) (dirs []string, r *rounds) {
	t.Helper()
	cfg.Dir = "unused"
	cfg, err := cfg.withDefaults()
	require.NoError(t, err)
	r, err = newRounds(cfg)
	require.NoError(t, err)
	for len(dirs) < most {
		next, ok := r.next()
		if !ok {
			break
		}
		dirs = append(dirs, next.dir())
		each()
	}
	return dirs, r
}

func none() {}

// A suite that ends early has done as many seeds of each scenario; scripts and controls run
// with the first seeds alone, and each control once without faults.
func TestRounds_AllScenariosWithOneSeedThenWithTheNext(t *testing.T) {
	cfg := Config{Scenarios: []string{"pauses", "partitions", "kill-while-locking"}, Groups: []string{result.Fenced, "etcd-mutex", "redis-setnx-expire"}, Seed: 5, Seeds: 3}
	dirs, r := taken(t, cfg, 100, none)
	require.Equal(t, []string{
		"pauses/fenced/seed-5", "pauses/etcd-mutex/seed-5", "pauses/etcd-mutex/seed-5-calm",
		"partitions/fenced/seed-5", "partitions/etcd-mutex/seed-5",
		"kill-while-locking/fenced/seed-5", "kill-while-locking/redis-setnx-expire/seed-5", "kill-while-locking/redis-setnx-expire/seed-5-calm",
		"pauses/fenced/seed-6", "partitions/fenced/seed-6", "pauses/fenced/seed-7", "partitions/fenced/seed-7",
	}, dirs)
	require.Equal(t, dirs, r.wanted())
	cfg.ScriptSeeds = 2
	dirs, r = taken(t, cfg, 100, none)
	require.Len(t, dirs, 18)
	require.Contains(t, dirs, "kill-while-locking/fenced/seed-6")
	require.Contains(t, dirs, "partitions/etcd-mutex/seed-6")
	require.NotContains(t, dirs, "kill-while-locking/fenced/seed-7")
	require.Len(t, r.wanted(), len(dirs))
}

func TestRounds_GoOnForAsLongAsADurationSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Scenarios: []string{"pauses", "crashes"}, Groups: []string{result.Fenced}, Duration: 10 * time.Second}
		dirs, r := taken(t, cfg, 100, func() { time.Sleep(4 * time.Second) })
		require.Equal(t, []string{"pauses/fenced/seed-1", "crashes/fenced/seed-1", "pauses/fenced/seed-2"}, dirs)
		require.Equal(t, dirs[:2], r.wanted())
	})
}

// Later seeds have no runs.
func TestRounds_OfScriptsEndBeforeTheDuration(t *testing.T) {
	dirs, _ := taken(t, Config{Scenarios: []string{"kill-while-locking"}, Groups: []string{result.Fenced}, Duration: time.Hour, ScriptSeeds: 2}, 100, none)
	require.Equal(t, []string{"kill-while-locking/fenced/seed-1", "kill-while-locking/fenced/seed-2"}, dirs)
}

func TestRounds_ScenariosSetTheStock(t *testing.T) {
	require.Equal(t, stock.Stock{Initial: 7}, stocked(stock.Stock{}, scenario.Scenario{Stock: 7}))
	require.Equal(t, stock.Stock{Initial: 9}, stocked(stock.Stock{Initial: 9}, scenario.Scenario{Stock: 7}))
	require.Equal(t, "passer", stocked(passer, scenario.Scenario{Stock: 7}).Name())
}

func TestConfig_ChoosesByNameFamilyOrPattern(t *testing.T) {
	for _, c := range []struct {
		patterns, want []string
	}{
		{[]string{"stalls"}, []string{"stalled-holder", "stalled-writer", "lost-lock"}},
		{[]string{"*-at-every-await", "kill-*"}, []string{"kill-while-locking", "expiry-at-every-await", "kill-at-every-await"}},
		{[]string{"pauses", "pauses", "p*s"}, []string{"pauses", "partitions"}},
	} {
		chosen, err := Config{Scenarios: c.patterns}.scenarios()
		require.NoError(t, err)
		var names []string
		for _, s := range chosen {
			names = append(names, s.Name)
		}
		require.Subset(t, names, c.want, c.patterns)
		require.IsIncreasing(t, indexes(names), c.patterns)
	}
}

// The scenarios that need Patroni run with another workload only if they are chosen.
func TestConfig_ChoosesPatroniForTheBuiltInWorkload(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want bool
	}{
		{Config{Workload: stock.Stock{}}, true},
		{Config{Workload: passer}, false},
		{Config{Workload: passer, Scenarios: []string{"patroni"}}, true},
	} {
		chosen, err := c.cfg.scenarios()
		require.NoError(t, err)
		require.Equal(t, c.want, slices.ContainsFunc(chosen, func(s scenario.Scenario) bool { return s.Patroni }), "%+v", c.cfg)
	}
}

// indexes are the indexes of scenarios among all.
func indexes(names []string) (at []int) {
	for _, name := range names {
		for i, s := range scenario.All() {
			if s.Name == name {
				at = append(at, i)
			}
		}
	}
	return at
}

func TestConfig_SaysWhatIsWrong(t *testing.T) {
	for says, cfg := range map[string]Config{
		"Dir is missing":                 {},
		`"pausen" matches none`:          {Dir: "d", Scenarios: []string{"pauses", "pausen"}},
		`"[" matches none`:               {Dir: "d", Scenarios: []string{"["}},
		`"mutex" matches none`:           {Dir: "d", Groups: []string{"fenced", "mutex"}},
		"of the groups: fenced, no-lock": {Dir: "d", Groups: []string{"mutex"}},
		"with none of these controls":    {Dir: "d", Scenarios: []string{"stop-the-world"}, Groups: []string{"no-lock"}},
		"Seeds is -1":                    {Dir: "d", Seeds: -1},
		"ScriptSeeds is -1":              {Dir: "d", ScriptSeeds: -1},
		"Parallel is -1":                 {Dir: "d", Parallel: -1},
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

// Only the built-in workload has lots, so no other has to meet what rests on them.
func TestRounds_OnlyTheBuiltInWorkloadHasLots(t *testing.T) {
	sc := scenario.Scenario{Lots: 2, Requires: []string{"a"}, StockRequires: []string{"b"}}
	for _, c := range []struct {
		workload workload.Workload
		lots     int
		requires []string
	}{
		{stock.Stock{}, 2, []string{"a", "b"}},
		{passer, 0, []string{"a"}},
	} {
		task := task{scenario: sc, workload: stocked(c.workload, sc), group: result.Fenced, faults: true}
		require.Equal(t, c.requires, task.result(nil).Requires)
		require.Equal(t, c.lots, (&performance{task: task}).workers().Lots)
	}
}

// A machine that stalls for a few seconds is a fault that a run without faults must not have.
func TestTask_WithoutFaultsLocksOutliveAStall(t *testing.T) {
	family, script := scenario.Scenario{Name: "family"}, scenario.Scenario{Name: "script", Script: func(context.Context, scenario.Environment) error { return nil }}
	require.Equal(t, workload.TTL, task{scenario: family, faults: true}.ttl())
	require.Equal(t, 10*workload.TTL, task{scenario: family}.ttl())
	require.Equal(t, workload.TTL, task{scenario: script}.ttl())
}
