package command

import (
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

func TestChaosList_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"scenarios", "groups", "faults"} {
		term := clitest.NewTerminal(t)
		require.Equal(t, cli.ExitOK, cli.Run(t.Context(), newRoot(), []string{"list", list}, term.TTY, io.Discard))
		term.Close()
		lines := strings.Split(term.Shown(), "\n")
		require.Greater(t, len(lines), 10)
		for _, line := range lines {
			require.LessOrEqual(t, text.StringWidthWithoutEscSequences(strings.TrimRight(line, " \r")), clitest.Columns, "%s: %s", list, line)
		}
	}
}

func TestChaosTables_FitTheTerminal(t *testing.T) {
	t.Parallel()
	suite := saved(t, result.Pass)
	loaded, err := loadSuite(suite)
	require.NoError(t, err)
	term := clitest.NewTerminal(t)
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), newRoot(), []string{"compare", suite, suite}, term.TTY, io.Discard))
	require.NoError(t, cli.WriteList(term.TTY, cli.FormatTable, totalRows(loaded)))
	term.Close()
	require.Contains(t, term.Lines(), "violated:       1 -> 1")
	require.Contains(t, term.Lines(), "injected:       0")
	for _, line := range term.Lines() {
		require.LessOrEqual(t, text.StringWidth(line), clitest.Columns)
	}
}

// A line that wraps would be left behind each time the bar is drawn anew.
func TestChaosRun_ProgressFitsTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	term := clitest.NewTerminal(t)
	p := newProgress(term.TTY, &run.Config{})
	p.update(run.Progress{Done: 10, Total: 100, Run: &result.Run{Scenario: "a-scenario-of-a-very-long-name", Group: "postgres-advisory", Seed: 1000}})
	require.Eventually(t, func() bool { return strings.Contains(term.Shown(), "run 10 of 100: a-scenario") }, time.Minute, time.Millisecond)
	p.close()
	term.Close()
	for _, line := range regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]|[\r\n]`).Split(term.Shown(), -1) {
		require.LessOrEqual(t, text.StringWidth(strings.TrimSpace(line))+len("1h30m"), clitest.Columns, line)
		require.NotContains(t, line, "?", "a percentage that is not known")
		require.NotRegexp(t, `\d\.\d+s`, line)
	}
}
