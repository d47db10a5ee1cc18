package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/bench/internal/result"
	benchrun "github.com/fencekit/fencekit/internal/test/bench/internal/run"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) {
	benchrun.PlayRole()
	testenv.Main(m)
}

// Every contender of the first scenario of each family does its work on real servers: none fails, and no safe one
// loses an update.
func TestScenarios_DoTheirWork(t *testing.T) {
	families, safe := map[string]bool{}, map[[2]string]bool{}
	var all []scenario.Scenario
	for _, s := range scenario.All() {
		if family, _, _ := strings.Cut(s.Name, "/"); !families[family] {
			families[family] = true
			all = append(all, s)
			for _, c := range s.Contenders {
				safe[[2]string{s.Name, c.Name}] = c.Unsafe == ""
			}
		}
	}
	cfg := benchrun.Config{Rounds: 1, Seconds: 0.05, Rows: 2000, Progress: t.Output(), Tiny: true}
	found, err := benchrun.Place(t.Context(), cfg, result.Tmpfs, []time.Duration{0}, all)
	require.NoError(t, err)
	for _, c := range found.Cells {
		require.Empty(t, c.Err, "%s, %s", c.Scenario, c.Contender)
		if safe[[2]string{c.Scenario, c.Contender}] {
			require.Zero(t, c.Values[result.Lost], "%s, %s", c.Scenario, c.Contender)
		}
	}
	require.Len(t, found.Cells, len(safe))
}

// With latency clients go through links.
func TestScenarios_RunWithLatency(t *testing.T) {
	cfg := benchrun.Config{Rounds: 2, Seconds: 0.05, Rows: 100, Progress: t.Output(), Tiny: true}
	latency := 500 * time.Microsecond
	found, err := benchrun.Place(t.Context(), cfg, result.Tmpfs, []time.Duration{latency}, scenario.All()[:1])
	require.NoError(t, err)
	one := len(found.Cells) / 2
	require.Len(t, scenario.All()[0].Contenders, one)
	for _, c := range found.Cells {
		require.Empty(t, c.Err)
		require.Equal(t, latency, c.Regime.Latency)
	}
	require.NotEqual(t, found.Cells[0].Contender, found.Cells[one].Contender, "the order rotates")
}
