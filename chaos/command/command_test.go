package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

func TestChaosList_ScenariosGroupsAndFaults(t *testing.T) {
	t.Parallel()
	for args, names := range map[string][]string{
		"list":           {"NAME", "pauses", "stalled-holder"},
		"list scenarios": {"NAME", "pauses", "stalled-holder"},
		"list groups":    {"NAME", "fenced", "redlock"},
		"list faults":    {"KIND", "pause", "commit-held"},
	} {
		got := fencectl(t, strings.Fields(args)...)
		require.Equal(t, cli.ExitOK, got.Code)
		require.Empty(t, got.Stderr)
		var first []string
		for line := range strings.Lines(got.Stdout) {
			first = append(first, strings.Fields(line)[0])
		}
		require.Subset(t, first, names, args)
	}
	var rows []scenarioRow
	require.NoError(t, json.Unmarshal([]byte(fencectl(t, "list", "-o", "json").Stdout), &rows))
	require.Len(t, rows, len(scenario.All()))
}

// A run with real servers and processes, in which Fencekit holds and a control breaks.
// The other commands then read its files.
func TestChaosRun_LeavesASuiteThatCanBeReadAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "suite")
	junit := filepath.Join(t.TempDir(), "more.xml")
	var stdout, stderr bytes.Buffer
	cmd := clitest.Child(t, nil, "run", "--scenario", "stalled-holder", "--groups", "fenced,token-compare", "--out", dir, "--junit", junit, "-o", "json")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.Equal(t, cli.ExitOK, clitest.ExitCode(t, cmd.Run), stderr.String())
	require.Contains(t, stderr.String(), "run 1 of 3: pass: stalled-holder, fenced, seed 1 (")
	require.Contains(t, stderr.String(), "red (broke, as a control must): stalled-holder, token-compare, seed 1 (")
	require.Contains(t, stderr.String(), "green (held, as it must without faults): stalled-holder, token-compare, seed 1, without faults (")
	require.Contains(t, stderr.String(), "The report is "+filepath.Join(dir, "report.html"))
	require.Contains(t, stderr.String(), "No violation in 1 run of 1 scenario")
	var rows []totalRow
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &rows))
	require.Len(t, rows, 3)
	require.Equal(t, result.Fenced, rows[0].Group)
	require.Zero(t, rows[0].Violated)
	require.Equal(t, "token-compare", rows[1].Group)
	require.Equal(t, 1, rows[1].Violated)

	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "goes on and tries to write. It is rejected (✕)")
	require.Contains(t, string(page), "fencectl chaos run --groups fenced --groups token-compare --scenario stalled-holder")
	for _, path := range []string{filepath.Join(dir, "junit.xml"), junit} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, xml.Unmarshal(text, &struct{}{}))
		require.Contains(t, string(text), `name="stalled-holder, fenced, seed 1"`)
	}

	got := fencectl(t, "verify", dir)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Empty(t, got.Stdout)
	require.Equal(t, "3 runs judged again: 0 changed, 0 not kept. The suite was pass, now pass.\n", got.Stderr)
}

func TestChaosRun_SaysHowToGoOnWithRunsThatAreThere(t *testing.T) {
	t.Parallel()
	got := fencectl(t, "run", "--scenario", "stalled-holder", "--out", saved(t, result.Pass))
	require.Equal(t, cli.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "to go on with them give --resume (Config.Resume), or take another directory")
}

// lost are the findings of a run that lost updates.
var lost = []check.Finding{{Property: "I2", Status: check.Violated}}

// saved is a suite of one run under Fencekit of that verdict, and a control.
func saved(t *testing.T, verdict result.Verdict) (dir string) {
	t.Helper()
	dir = t.TempDir()
	runs := []result.Run{
		{Scenario: "stop", Group: result.Fenced, Seed: 1, Faults: true, Dir: "stop/fenced/1", Verdict: verdict, Reason: "I2: 1 counterexample",
			Counts: result.Counts{Operations: 12}, Latency: result.Quantiles{Count: 1, P50: time.Millisecond, P99: 2 * time.Millisecond}},
		{Scenario: "stop", Group: "redlock", Seed: 1, Faults: true, Dir: "stop/redlock/1", Verdict: result.Violated, Findings: lost, Breaks: check.OfData()},
		{Scenario: "stop", Group: "redlock", Seed: 1, Dir: "stop/redlock/1-calm", Verdict: result.Pass},
	}
	for i := range runs {
		runs[i].Workload = stock.Stock{}.Name()
	}
	suite := &result.Suite{Runs: runs}
	suite.Judge()
	require.NoError(t, result.SaveSuite(dir, suite))
	return dir
}

// A suite that ends early does not hide that a property was violated.
func TestChaosRun_AViolationStaysOneWhateverEndsTheSuite(t *testing.T) {
	t.Parallel()
	noServers := []string{"FENCEKIT_POSTGRES=docker", "FENCEKIT_POSTGRES_DSN=", "DOCKER_HOST=unix:///no/daemon"}
	for verdict, code := range map[result.Verdict]int{result.Pass: cli.ExitNotReady, result.Violated: cli.ExitViolated} {
		var stderr bytes.Buffer
		cmd := clitest.Child(t, noServers, "run", "--scenario", "stalled-holder", "--groups", "fenced", "--resume", "--out", saved(t, verdict))
		cmd.Stderr = &stderr
		require.Equal(t, code, clitest.ExitCode(t, cmd.Run), stderr.String())
		require.Contains(t, stderr.String(), "chaos: environment is not ready")
	}
}

// Nor does a table that can't be written.
func TestRun_AViolationStaysOneIfTheTableIsNotWritten(t *testing.T) {
	t.Parallel()
	noServers := []string{"FENCEKIT_POSTGRES=docker", "FENCEKIT_POSTGRES_DSN=", "DOCKER_HOST=unix:///no/daemon"}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, full.Close()) })
	for verdict, code := range map[result.Verdict]int{result.Pass: cli.ExitInconclusive, result.Violated: cli.ExitViolated} {
		for _, args := range [][]string{
			{"verify", saved(t, verdict)},
			{"run", "--scenario", "stalled-holder", "--groups", "fenced", "--resume", "--out", saved(t, verdict)},
		} {
			var stderr bytes.Buffer
			cmd := clitest.Child(t, noServers, args...)
			cmd.Stdout, cmd.Stderr = full, &stderr
			got := clitest.ExitCode(t, cmd.Run)
			require.Contains(t, stderr.String(), "can't write the output: ")
			if verdict == result.Violated || args[0] == "verify" {
				require.Equal(t, code, got, stderr.String())
			}
		}
	}
}

// Nor does a report that can't be written.
func TestChaosRun_AViolationStaysOneIfTheReportIsNotWritten(t *testing.T) {
	t.Parallel()
	noServers := []string{"FENCEKIT_POSTGRES=docker", "FENCEKIT_POSTGRES_DSN=", "DOCKER_HOST=unix:///no/daemon"}
	for verdict, code := range map[result.Verdict]int{result.Pass: cli.ExitNotReady, result.Violated: cli.ExitViolated} {
		dir := saved(t, verdict)
		require.NoError(t, os.Mkdir(filepath.Join(dir, result.ReportFile), 0o755))
		var stderr bytes.Buffer
		cmd := clitest.Child(t, noServers, "run", "--scenario", "stalled-holder", "--groups", "fenced", "--resume", "--out", dir)
		cmd.Stderr = &stderr
		require.Equal(t, code, clitest.ExitCode(t, cmd.Run), stderr.String())
		require.Contains(t, stderr.String(), "is a directory")
	}
}

func TestChaosRun_AViolationStaysOneIfInterrupted(t *testing.T) {
	t.Parallel()
	for verdict, code := range map[result.Verdict]int{result.Pass: cli.ExitInconclusive, result.Violated: cli.ExitViolated} {
		cmd := clitest.Child(t, nil, "run", "--scenario", "stalled-holder", "--groups", "fenced", "--script-seeds", "1000", "--resume", "--out", saved(t, verdict))
		stderr, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		first := bufio.NewReader(stderr)
		_, err = first.ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		rest, err := io.ReadAll(first)
		require.NoError(t, err)
		require.Equal(t, code, clitest.ExitCode(t, cmd.Wait), string(rest))
		require.Contains(t, string(rest), "fencectl: interrupted: ")
		page, err := os.ReadFile(filepath.Join(cmd.Args[len(cmd.Args)-1], result.ReportFile))
		require.NoError(t, err)
		require.Contains(t, string(page), "It ended early: interrupt signal received.")
		require.Equal(t, 1, strings.Count(string(page), "that were asked for are missing"))
		require.Contains(t, string(rest), "with --resume --out "+cmd.Args[len(cmd.Args)-1]+" goes on with it.")
	}
}

func TestChaosVerify_ExitsByTheVerdict(t *testing.T) {
	t.Parallel()
	for verdict, code := range map[result.Verdict]int{result.Pass: cli.ExitOK, result.Violated: cli.ExitViolated, result.Inconclusive: cli.ExitInconclusive} {
		got := fencectl(t, "verify", saved(t, verdict))
		require.Equal(t, code, got.Code, got.Stderr)
		require.Contains(t, got.Stderr, "0 runs judged again: 0 changed, 3 not kept. The suite was "+string(verdict)+", now "+string(verdict)+".")
	}
	require.Contains(t, fencectl(t, "verify", saved(t, result.Violated)).Stderr, "fencectl: 1 of 1 run violated a property. The first: stop, fenced, seed 1: I2: 1 counterexample.")
}

func TestChaosVerify_PrintsWhatIsJudgedInAnotherWay(t *testing.T) {
	t.Parallel()
	dir := saved(t, result.Pass)
	run := &result.Run{Scenario: "stop", Group: "control", Dir: "stop/control/1", Faults: true, Verdict: result.Pass}
	path := filepath.Join(t.TempDir(), "history")
	file, err := os.Create(path)
	require.NoError(t, err)
	history.NewRecorder(file).Record(history.Event{Kind: history.Note})
	require.NoError(t, file.Close())
	require.NoError(t, result.Save(dir, run, path, &observe.Observation{}))
	got := fencectl(t, "verify", dir, "-o", "csv")
	require.Equal(t, cli.ExitInconclusive, got.Code)
	require.True(t, strings.HasPrefix(got.Stdout, "dir,was,is,findings\nstop/control/1,pass,"), got.Stdout)
}

func TestChaosCompare_PutsSuitesSideBySide(t *testing.T) {
	t.Parallel()
	got := fencectl(t, "compare", saved(t, result.Pass), saved(t, result.Violated), "-o", "csv")
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stdout, "stop,fenced,on,1 -> 1,0 -> 1,0 -> 0,12 -> 12,0 -> 0,0 -> 0,0 -> 0,1ms -> 1ms,2ms -> 2ms,'- -> -\n")
	require.Contains(t, got.Stdout, "stop,redlock,on,1 -> 1,1 -> 1,")
	require.Contains(t, got.Stderr, ": pass: No violation in 1 run")
	require.Contains(t, got.Stderr, ": violated: 1 of 1 run violated a property.")
}

func TestRunLine_TellsARedControlFromAViolation(t *testing.T) {
	t.Parallel()
	r := result.Run{Scenario: "stop", Group: result.Fenced, Seed: 7, Faults: true, Took: 1234 * time.Millisecond, Verdict: result.Violated, Reason: "I2: lost"}
	line := func(begins string) {
		t.Helper()
		require.Contains(t, runLine(run.Progress{Run: &r, Done: 3, Total: 9}), begins)
	}
	line("run 3 of 9: violated: stop, fenced, seed 7 (1.2s): I2: lost")
	r.Verdict = result.Pass
	line("run 3 of 9: pass: stop, fenced, seed 7 (1.2s)")
	r.Group = "redlock"
	line("run 3 of 9: green (did not break): stop, redlock, seed 7 (1.2s)")
	r.Verdict, r.Findings, r.Breaks = result.Violated, lost, check.OfData()
	line("run 3 of 9: red (broke, as a control must): stop, redlock, seed 7 (1.2s)")
	r.Breaks = []string{check.Progress}
	line("run 3 of 9: violated: stop, redlock, seed 7 (1.2s): I2: lost")
	r.Verdict = result.Inconclusive
	line("run 3 of 9: inconclusive: stop, redlock, seed 7 (1.2s): I2: lost")
	require.Contains(t, runLine(run.Progress{Run: &r, Done: 10, Total: 9}), "run 10: ")
}

// What the first seed takes is said at the start: it may be longer than the duration.
func TestPlan_SaysTheLeastThatADurationTakes(t *testing.T) {
	t.Parallel()
	require.Equal(t, "75 runs of about 10s, 2 at a time: about 6m20s.", plan(&run.Config{Parallel: 2}, 75))
	require.Equal(t, "74 runs of about 10s, 1 at a time: about 12m20s. These have the first seed and are all done, however long that takes; others begin until 1m0s have passed.",
		plan(&run.Config{Duration: time.Minute}, 74))
}

func TestCommandLine_RepeatsWhatWasAsked(t *testing.T) {
	t.Parallel()
	root := newRoot()
	cmd, rest, err := root.Find(strings.Fields("run --scenario pauses --scenario x'y --seeds 3 --out dir --resume --junit f -o json"))
	require.NoError(t, err)
	require.NoError(t, cmd.ParseFlags(rest))
	require.Equal(t, `fencectl chaos run --scenario pauses --scenario 'x'\''y' --seed 1 --seeds 3`, commandLine(cmd))
}
