package service

import (
	"flag"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos"
)

var (
	seeds     = flag.Int("seeds", 1, "how many seeds, from -seed on, TestChaos_… runs each scenario with")
	scenarios = flag.String("scenarios", "stalled-holder,pauses,unknown-commits", "which scenarios TestChaos_… runs: names or patterns, separated by commas")
)

// The service's own code, in processes that are stopped, cut off and killed.
//
//	go test ./examples/inventory/service -run TestChaos -v -timeout 2h -args -seeds 10 -scenarios pauses,crashes
func TestChaos_NothingIsSoldTwice(t *testing.T) {
	t.Parallel()
	chaos.Test(t, chaos.Config{Workload: deductWorkload{}, Scenarios: strings.Split(*scenarios, ","), Seed: *seed, Seeds: *seeds})
}

// The control: with the lock alone the same faults sell lots twice, and the check
// finds it.
func TestChaos_WithTheLockAloneIsFoundOut(t *testing.T) {
	t.Parallel()
	suite, err := chaos.Run(t.Context(), chaos.Config{
		Workload: lockedWorkload{}, Scenarios: []string{"stalled-holder"}, Groups: []string{"fenced"}, Seed: *seed, Dir: t.TempDir(),
	})
	require.NoError(t, err)
	require.Len(t, suite.Runs, 1)
	t.Log(suite.Runs[0].Failed)
	require.Contains(t, suite.Runs[0].Failed, "were reserved")
}
