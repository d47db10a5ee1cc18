package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// save saves a run, beside the history that its processes have written.
func save(t *testing.T, dir string, run *Run) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.FromSlash(run.Dir)), 0o755))
	require.NoError(t, Save(dir, run, &observe.Observation{}))
}

func TestSave_IsReadAgainByLoadSuite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "[out]*") // what a pattern would stumble over
	run := Run{
		Dir: "stop/fenced/seed-7", Scenario: "../<stop>", Family: "pauses", Group: Fenced, Seed: 7, Faults: true, Started: time.Unix(1700000000, 5).UTC(), Took: time.Second,
		Verdict: Violated, Reason: "I2", Findings: []Finding{{Property: "I2", Status: Flagged, Examples: []string{"x"}}},
		Counts: Counts{Operations: 3}, Hits: map[string]int{"a": 1}, Schedule: []Step{{At: 1, For: 2, Fault: "pause w1"}},
		Progress: time.Minute, Requires: []string{"a"}, Stock: true, Workload: "stock", Failed: "no",
	}
	_, err := LoadSuite(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	save(t, dir, &run)

	suite, err := LoadSuite(dir) // also without its own file
	require.NoError(t, err)
	require.Equal(t, []Run{run}, suite.Runs)

	earlier := run
	earlier.Dir, earlier.Started = "stop/fenced/seed-8", time.Unix(10, 0).UTC()
	save(t, dir, &earlier)
	require.NoError(t, SaveSuite(dir, &Suite{Command: "again", Verdict: Pass}))
	suite, err = LoadSuite(dir)
	require.NoError(t, err)
	require.Equal(t, "again", suite.Command)
	require.Equal(t, []Run{earlier, run}, suite.Runs)

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o755)) // another suite where a run would be
	require.NoError(t, SaveSuite(filepath.Join(dir, "a", "b", "c"), &Suite{Verdict: Pass}))
	_, err = LoadSuite(dir)
	require.ErrorContains(t, err, "a/b/c/result.json is no run of a suite")
}
