package command

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/suite"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestChaosList_ScenariosAndGroups(t *testing.T) {
	t.Parallel()
	for args, names := range map[string][]string{
		"list":           {"NAME", "pauses", "stalled-holder"},
		"list scenarios": {"NAME", "pauses", "stalled-holder"},
		"list groups":    {"NAME", "fenced", "etcd-mutex"},
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
	var rows []check.Scenario
	require.NoError(t, json.Unmarshal([]byte(fencectl(t, "list", "-o", "json").Stdout), &rows))
	require.Len(t, rows, len(run.Scenarios))
}

// A run with real servers and processes, in which Fencekit holds and a control breaks.
func TestChaosRun_LeavesASuite(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "suite")
	var stdout, stderr bytes.Buffer
	cmd := clitest.Child(t, nil, "run", "--scenario", "stalled-holder", "--groups", "fenced,token-compare", "--out", dir, "-o", "json")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.Equal(t, cli.ExitOK, clitest.ExitCode(t, cmd.Run), stderr.String())
	require.Contains(t, stderr.String(), "run 1 of 3: pass: stalled-holder, fenced, seed 1 (")
	require.Contains(t, stderr.String(), "red (broke, as a control must): stalled-holder, token-compare, seed 1 (")
	require.Contains(t, stderr.String(), "green (held, as it must without faults): stalled-holder, token-compare, seed 1, without faults (")
	require.Contains(t, stderr.String(), "The results are in "+dir)
	require.Contains(t, stderr.String(), "No violation in 1 run of 1 scenario")
	var rows []check.Run
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &rows))
	require.Len(t, rows, 3)
	require.Equal(t, check.Pass, rows[0].Verdict)
	require.Equal(t, "token-compare", rows[1].Group)
	require.Equal(t, check.Violated, rows[1].Verdict)

	got := fencectl(t, "run", "--scenario", "stalled-holder", "--out", dir)
	require.Equal(t, cli.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "take another directory")
}

// A suite that ends early does not hide that a property was violated.
func TestOutcome_AViolationStaysOneWhateverEndsTheSuite(t *testing.T) {
	for _, ended := range []error{nil, suite.ErrEnvironment, context.Canceled} {
		var exit *cli.ExitError
		require.ErrorAs(t, outcome(&check.Suite{Verdict: check.Violated}, ended), &exit)
		require.Equal(t, cli.ExitViolated, exit.Code)
	}
	var exit *cli.ExitError
	require.ErrorAs(t, outcome(&check.Suite{Verdict: check.Pass}, suite.ErrEnvironment), &exit)
	require.Equal(t, cli.ExitNotReady, exit.Code)
	require.ErrorIs(t, outcome(&check.Suite{Verdict: check.Pass}, context.Canceled), context.Canceled)
}

func TestMain(m *testing.M) {
	chaos.Reexec()
	clitest.Reexec(Main)
	_ = os.Unsetenv("FENCEKIT_OUTPUT") // a developer's settings are no part of the tests
	testenv.Main(m)
}

// fencectl runs the command line in this process.
func fencectl(t *testing.T, args ...string) clitest.Ending {
	t.Helper()
	return clitest.Run(t, newRoot(), args...)
}

func TestUsage_Is64(t *testing.T) {
	t.Parallel()
	for says, args := range map[string]string{
		"--duration and --seeds exclude each other": "run --duration 1m --seeds 2",
		"--scenario is empty":                       "run --scenario=",
		"list takes one of scenarios or groups":     "list nothing",
	} {
		got := fencectl(t, strings.Fields(args)...)
		require.Equal(t, cli.ExitUsage, got.Code, args)
		require.Contains(t, got.Stderr, says, args)
	}
}
