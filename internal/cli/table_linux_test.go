package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

// narrowRow is a row of columns that no terminal has room for side by side.
type narrowRow struct{ name, changes, story string }

func (narrowRow) Columns() []string {
	return []string{"name", "changes", "hand_over_p99", "story"}
}
func (r narrowRow) Cells() []string { return []string{r.name, r.changes, "", r.story} }

func TestTable_IsBlocksOnATerminalThatIsTooNarrow(t *testing.T) {
	t.Parallel()
	rows := []narrowRow{
		{strings.Repeat("n", 30), "1 -> 2", strings.Repeat("story ", 20)},
		{"b", "10 -> 20, 30 -> 40", "short"},
	}
	term := clitest.NewTerminal(t)
	require.NoError(t, cli.WriteList(term.TTY, cli.FormatTable, rows))
	term.Close()
	require.Equal(t, []string{
		"name:           " + strings.Repeat("n", 30),
		"changes:        1 -> 2",
		"hand over p99:  -",
		"story:          story story story story story story story story story story",
		"                story story story story story story story story story story",
		"",
		"name:           b",
		"changes:        10 -> 20, 30 -> 40",
		"hand over p99:  -",
		"story:          short",
		"",
	}, term.Lines())

	var b strings.Builder
	require.NoError(t, cli.WriteList(&b, cli.FormatTable, rows))
	require.Len(t, strings.Split(b.String(), "\n"), 4, "stdout is no terminal: a line for each row")

	term = clitest.NewTerminal(t)
	require.NoError(t, cli.WriteList(term.TTY, cli.FormatTable, rows[1:]))
	term.Close()
	require.Equal(t, []string{
		"NAME  CHANGES             HAND OVER P99  STORY",
		"b     10 -> 20, 30 -> 40  -              short",
		"",
	}, term.Lines())
}

// A cell stays in its place, whatever it has: a line break would forge a row, and a terminal obeys ESC.
func TestTable_EscapesWhatATerminalWouldObey(t *testing.T) {
	t.Parallel()
	rows := []narrowRow{{"a\nb", "\x1b[2J größe", "\u202e\u0085\x00\\"}}
	var b strings.Builder
	require.NoError(t, cli.WriteList(&b, cli.FormatTable, rows))
	require.Equal(t, "NAME  CHANGES        HAND OVER P99  STORY\n"+`a\nb  \x1b[2J größe  -              \u202e\u0085\x00\`+"\n", b.String())

	rows[0].name = strings.Repeat("n", 100) + "\n"
	term := clitest.NewTerminal(t)
	require.NoError(t, cli.WriteList(term.TTY, cli.FormatTable, rows))
	term.Close()
	require.NotContains(t, strings.Join(term.Lines(), ""), "\x1b[2J")
	require.Contains(t, term.Lines(), `changes:        \x1b[2J größe`)
}
