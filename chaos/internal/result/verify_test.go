package result

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// sold is what a run leaves in which one operation sold one of ten units.
func sold() ([]history.Event, observe.Observation) {
	ms := int64(time.Millisecond)
	return []history.Event{
			{At: 1 * ms, Kind: history.Phase, Name: history.PhaseLoad, Process: history.Runner},
			{At: 2 * ms, Kind: history.Invoke, Process: "w0", Op: "1", Action: "do", Resources: []string{"r"}},
			{At: 5 * ms, Kind: history.OK, Process: "w0", Op: "1"},
			{At: 6 * ms, Kind: history.Phase, Name: history.PhaseFaultsOver, Process: history.Runner},
			{At: 7 * ms, Kind: history.Phase, Name: history.PhaseFinal, Process: history.Runner},
			{At: 8 * ms, Kind: history.Invoke, Process: "w0", Op: "2", Action: "do", Resources: []string{"r"}},
			{At: 9 * ms, Kind: history.OK, Process: "w0", Op: "2"},
			{At: 10 * ms, Kind: history.Phase, Name: history.PhaseEnd, Process: history.Runner},
		}, observe.Observation{
			Stocks: []observe.Stock{{Resource: "r", Initial: 10, Available: 8}},
			Effects: []observe.Effect{
				{Order: 1, Op: "1", Resource: "r", Quantity: 1, Seen: 10},
				{Order: 2, Op: "2", Resource: "r", Quantity: 1, Seen: 9},
			},
		}
}

// control is a run of a control, which only what sold leaves is asked of.
func controlRun(seed string) *Run {
	return &Run{Dir: "stop/redlock/" + seed, Scenario: "stop", Group: "redlock", Faults: true, Progress: time.Second, Stock: true}
}

func TestRun_JudgeGoesByHistoryAndObservation(t *testing.T) {
	t.Parallel()
	events, observed := sold()
	run := controlRun("seed-1")
	run.Judge(events, observed)
	require.Equal(t, Pass, run.Verdict, run.Reason)
	require.Equal(t, 2, run.Counts.OK)
	require.Equal(t, Quantiles{2, time.Millisecond, 3 * time.Millisecond, 3 * time.Millisecond, 3 * time.Millisecond}, run.Latency)
	require.NotNil(t, run.Hits)

	observed.Effects[1].Seen = 10
	run.Judge(events, observed)
	require.Equal(t, Violated, run.Verdict)
	require.Contains(t, run.Reason, "I2: ")
	require.Equal(t, 1, run.Counts.Lost)
}

// A run's own settings and findings are part of what it is judged by.
func TestRun_JudgeGoesByWhatIsKeptOfIt(t *testing.T) {
	t.Parallel()
	events, observed := sold()
	for property, c := range map[string]struct {
		keep func(*Run)
		want check.Status
	}{
		"workload": {func(r *Run) { r.Failed = "an update was lost" }, check.Violated},
		"run":      {func(r *Run) { r.Wrong = "it hangs" }, check.Violated},
		"I11":      {func(r *Run) { r.Group, r.Requires = Fenced, []string{"never met"} }, check.Unchecked},
		"I2":       {func(r *Run) { r.Stock = false }, check.Irrelevant},
		"I9":       {func(r *Run) { r.Progress = 0 }, check.Unchecked},
	} {
		run := controlRun("seed-1")
		run.Judge(events, observed)
		require.NotEqual(t, c.want, statusOf(run, property), property)
		c.keep(run)
		run.Judge(events, observed)
		require.Equal(t, c.want, statusOf(run, property), property)
	}
}

func statusOf(r *Run, property string) check.Status {
	for _, f := range r.Findings {
		if f.Property == property {
			return f.Status
		}
	}
	return ""
}

func TestVerify_JudgesAgainByTheSavedFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	events, observed := sold()
	same := controlRun("seed-1")
	same.Judge(events, observed)
	require.NoError(t, Save(dir, same, historyFile(t, events...), &observed))

	mended := controlRun("seed-2") // as judged by a checker that saw nothing
	mended.Judge(events, observed)
	for i := range mended.Findings {
		if mended.Findings[i].Property == "I3" {
			mended.Findings[i].Property = "I0"
		}
	}
	observed.Effects[1].Seen = 10
	require.NoError(t, Save(dir, mended, historyFile(t, events...), &observed))

	lost := controlRun("seed-3")
	lost.Verdict = Pass
	require.NoError(t, SaveSuite(dir, &Suite{Verdict: Pass, Runs: []Run{*lost}}))
	before := files(t, dir)

	got, err := Verify(dir)
	require.NoError(t, err)
	require.Equal(t, 2, got.Judged)
	require.Equal(t, []string{lost.Dir}, got.Missing)
	require.Equal(t, Pass, got.Was)
	require.Equal(t, Inconclusive, got.Suite.Verdict) // nothing ran under Fencekit
	require.Len(t, got.Changes, 1)
	change := got.Changes[0]
	require.Equal(t, "stop, redlock, seed 0", change.Run)
	require.Equal(t, mended.Dir, change.Dir)
	require.Equal(t, Pass, change.Was)
	require.Equal(t, Violated, change.Is)
	require.Len(t, change.Findings, 3)
	require.Contains(t, change.Findings[0], "I2: held, now violated: 1 counterexample")
	require.Contains(t, change.Findings[1], "I3: not judged, now held: ")
	require.Equal(t, "I0: held, now not judged", change.Findings[2])
	require.Equal(t, before, files(t, dir))
}

func TestVerify_RejectsAHistoryThatIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := controlRun("seed-1")
	run.Verdict = Pass
	save(t, dir, run)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "stop", "redlock", "seed-1", HistoryFile), []byte("{}\nnonsense\n"), 0o644))
	_, err := Verify(dir)
	require.ErrorContains(t, err, "line 2 is no event")
}

func TestChanged_IsEmptyForTheSameFindings(t *testing.T) {
	t.Parallel()
	findings := []check.Finding{{Property: "I2", Status: check.Held}, {Property: "I3", Status: check.Irrelevant}}
	require.Empty(t, changed(findings, findings))
}

// files are all files below a directory with their contents.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	}))
	return all
}

func TestVerify_TellsOfFindingsAndOfVerdictsThatChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	events, observed := sold()
	finding := controlRun("seed-1") // another finding, and the same verdict
	finding.Judge(events, observed)
	finding.Findings[0].Property = "I0"
	require.NoError(t, Save(dir, finding, historyFile(t, events...), &observed))
	verdict := controlRun("seed-2") // the same findings, and another verdict
	verdict.Judge(events, observed)
	verdict.Verdict = Inconclusive
	require.NoError(t, Save(dir, verdict, historyFile(t, events...), &observed))

	got, err := Verify(dir)
	require.NoError(t, err)
	require.Len(t, got.Changes, 2)
	require.Equal(t, finding.Dir, got.Changes[0].Dir)
	require.Equal(t, got.Changes[0].Was, got.Changes[0].Is)
	require.Equal(t, verdict.Dir, got.Changes[1].Dir)
	require.Empty(t, got.Changes[1].Findings)
	require.Equal(t, Pass, got.Changes[1].Is)
}

// Judged by a part of its history a run would be violated: it has effects of unknown operations.
func TestVerify_RejectsAHistoryThatWasCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := controlRun("seed-1")
	run.Judge(sold())
	save(t, dir, run)
	path := filepath.Join(dir, "stop", "redlock", "seed-1", HistoryFile)
	require.NoError(t, os.WriteFile(path, []byte("{}\n{\"at\":"), 0o644))
	_, err := Verify(dir)
	require.ErrorContains(t, err, "its history has 0 operations, and had 2: it is incomplete")
}
