package result

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// save saves a run with a history as processes write it: not in the order of its times, and
// with a last line that was cut off.
func save(t *testing.T, dir string, run *Run, events ...history.Event) {
	t.Helper()
	at := filepath.Join(dir, filepath.FromSlash(run.Dir))
	require.NoError(t, os.MkdirAll(at, 0o755))
	file, err := os.Create(filepath.Join(at, HistoryFile))
	require.NoError(t, err)
	recorder := history.NewRecorder(file)
	for _, e := range events {
		recorder.Record(e)
	}
	require.NoError(t, recorder.Err())
	_, err = file.WriteString(`{"at":9,"kind":"inv`)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, Save(dir, run, &observe.Observation{Left: []string{"key"}}))
}

func TestSave_IsReadAgainByLoad(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "[out]*") // what a pattern would stumble over
	run := &Run{
		Dir: "stop/fenced/seed-7", Scenario: "../<stop>", Family: "pauses", Group: Fenced, Seed: 7, Faults: true, Started: time.Unix(1700000000, 5).UTC(), Took: time.Second,
		Verdict: Violated, Reason: "I2", Findings: []check.Finding{{Property: "I2", Status: check.Violated, Examples: []string{"x"}}},
		Counts: Counts{Operations: 3}, Hits: map[string]int{"a": 1}, Schedule: []Step{{At: 1, For: 2, Fault: "pause w1"}},
		Progress: time.Minute, Requires: []string{"a"}, Stock: true, Workload: "stock", Failed: "no",
		Latency: Quantiles{Count: 1, Max: 5}, HandOver: Quantiles{Count: 2, Max: 6},
	}
	save(t, dir, run, history.Event{At: 5, Kind: history.OK, Op: "1"}, history.Event{At: 3, Kind: history.Invoke, Op: "1"})

	suite, err := LoadSuite(dir)
	require.NoError(t, err)
	require.Equal(t, []Run{*run}, suite.Runs)
	events, seen, err := Load(dir, &suite.Runs[0])
	require.NoError(t, err)
	require.Equal(t, &observe.Observation{Left: []string{"key"}}, seen)
	require.Equal(t, []history.Event{{At: 3, Kind: history.Invoke, Op: "1"}, {At: 5, Kind: history.OK, Op: "1"}}, events)
}

func TestSave_StaysBelowTheSuite(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"", "../elsewhere", "/elsewhere", ".", "a/../../b"} {
		run := &Run{Dir: where, Verdict: Pass}
		require.ErrorContains(t, Save(t.TempDir(), run, &observe.Observation{}), "no directory below the suite's")
		_, _, err := Load(t.TempDir(), run)
		require.ErrorContains(t, err, "no directory below the suite's")
		dir := t.TempDir()
		require.NoError(t, SaveSuite(dir, &Suite{Runs: []Run{*run}}))
		_, err = LoadSuite(dir)
		require.ErrorContains(t, err, "no directory below the suite's")
	}
}

func TestLoadSuite_FindsRunsThatItsFileDoesNotKnow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := LoadSuite(dir)
	require.ErrorIs(t, err, fs.ErrNotExist)

	first, second, third := fencedOK, redlockRed, redlockOff
	first.Started, second.Started, third.Started = time.Unix(30, 0), time.Unix(20, 0), time.Unix(10, 0)
	save(t, dir, &first)
	save(t, dir, &second)
	suite, err := LoadSuite(dir)
	require.NoError(t, err)
	require.Equal(t, []string{second.Dir, first.Dir}, dirs(suite))

	third.Dir = "not/kept/here"
	known := second
	known.Verdict = Inconclusive // older than what the directory says
	require.NoError(t, SaveSuite(dir, &Suite{Command: "again", Verdict: Pass, Runs: []Run{third, known}}))
	suite, err = LoadSuite(dir)
	require.NoError(t, err)
	require.Equal(t, "again", suite.Command)
	require.Equal(t, []string{third.Dir, second.Dir, first.Dir}, dirs(suite))
	require.Equal(t, Violated, suite.Runs[1].Verdict)

	moved := t.TempDir() // a run's directory is where it is, whatever it was
	require.NoError(t, os.MkdirAll(filepath.Join(moved, "x", "y"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(dir, filepath.FromSlash(first.Dir)), filepath.Join(moved, "x", "y", "z")))
	suite, err = LoadSuite(moved)
	require.NoError(t, err)
	require.Equal(t, []string{"x/y/z"}, dirs(suite))
}

func TestLoadSuite_RejectsWhatIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, SaveSuite(dir, &Suite{Runs: []Run{{Scenario: "s", Dir: "a", Verdict: "fine"}}}))
	_, err := LoadSuite(dir)
	require.ErrorContains(t, err, `run a has "fine" for a verdict: want pass, violated or inconclusive`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ResultFile), []byte("{"), 0o644))
	_, err = LoadSuite(dir)
	require.ErrorContains(t, err, "unexpected end of JSON")

	above := t.TempDir() // another suite's own file is where a run's would be
	require.NoError(t, SaveSuite(filepath.Join(above, "a", "b", "c"), &Suite{Verdict: Pass}))
	_, err = LoadSuite(above)
	require.ErrorContains(t, err, "a/b/c is no run of a suite")
}

func dirs(suite *Suite) []string {
	var all []string
	for _, r := range suite.Runs {
		all = append(all, r.Dir)
	}
	return all
}
