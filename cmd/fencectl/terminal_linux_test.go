package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/chaos/result"
)

const columns = 80

// terminal is a terminal, of which what was written to tty is read.
type terminal struct {
	tty, master *os.File
	read        chan struct{} // closed when all has been read

	mu    sync.Mutex
	bytes []byte
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	term := &terminal{tty: tty, master: master, read: make(chan struct{})}
	go func() {
		defer close(term.read)
		_, _ = io.Copy(term, master) // ends with EIO when the last writer has gone
	}()
	return term
}

// Write takes what was read.
func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p...)
	return len(p), nil
}

// shown is what was written so far.
func (t *terminal) shown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.bytes)
}

func (t *terminal) close() {
	_ = t.tty.Close()
	<-t.read
	_ = t.master.Close()
}

func TestChaosList_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"scenarios", "groups", "faults"} {
		term := newTerminal(t)
		require.Equal(t, exitOK, run(t.Context(), []string{"chaos", "list", list}, term.tty, io.Discard))
		term.close()
		lines := strings.Split(term.shown(), "\n")
		require.Greater(t, len(lines), 10)
		for _, line := range lines {
			require.LessOrEqual(t, text.StringWidthWithoutEscSequences(strings.TrimRight(line, " \r")), columns, "%s: %s", list, line)
		}
	}
}

// narrowRow is a row of columns that no terminal has room for side by side.
type narrowRow struct{ name, changes, story string }

func (narrowRow) columns() []string {
	return []string{"name", "changes", "hand_over_p99", "story"}
}
func (r narrowRow) cells() []string { return []string{r.name, r.changes, "", r.story} }

func TestTable_IsBlocksOnATerminalThatIsTooNarrow(t *testing.T) {
	t.Parallel()
	rows := []narrowRow{
		{strings.Repeat("n", 30), "1 -> 2", strings.Repeat("story ", 20)},
		{"b", "10 -> 20, 30 -> 40", "short"},
	}
	term := newTerminal(t)
	require.NoError(t, writeList(term.tty, formatTable, rows))
	term.close()
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
	}, linesOf(term))

	var b strings.Builder
	require.NoError(t, writeList(&b, formatTable, rows))
	require.Len(t, strings.Split(b.String(), "\n"), 4, "stdout is no terminal: a line for each row")

	term = newTerminal(t)
	require.NoError(t, writeList(term.tty, formatTable, rows[1:]))
	term.close()
	require.Equal(t, []string{
		"NAME  CHANGES             HAND OVER P99  STORY",
		"b     10 -> 20, 30 -> 40  -              short",
		"",
	}, linesOf(term))
}

// linesOf are the lines that a terminal shows, without color.
func linesOf(term *terminal) []string {
	lines := strings.Split(text.StripEscape(term.shown()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \r")
	}
	return lines
}

func TestChaosTables_FitTheTerminal(t *testing.T) {
	t.Parallel()
	suite := saved(t, result.Pass)
	loaded, err := loadSuite(suite)
	require.NoError(t, err)
	term := newTerminal(t)
	require.Equal(t, exitOK, run(t.Context(), []string{"chaos", "compare", suite, suite}, term.tty, io.Discard))
	require.NoError(t, writeList(term.tty, formatTable, totalRows(loaded)))
	term.close()
	require.Contains(t, linesOf(term), "violated:       1 -> 1")
	require.Contains(t, linesOf(term), "faults struck:  0")
	for _, line := range linesOf(term) {
		require.LessOrEqual(t, text.StringWidth(line), columns)
	}
}

// A line that wraps would be left behind each time the bar is drawn anew.
func TestChaosRun_ProgressFitsTheTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	term := newTerminal(t)
	p := newProgress(term.tty)
	p.tell(chaos.Progress{Done: 10, Total: 100, Run: &result.Run{Scenario: "a-scenario-of-a-very-long-name", Group: "postgres-advisory", Seed: 1000}})
	require.Eventually(t, func() bool { return strings.Contains(term.shown(), "10/100 a-scenario") }, time.Minute, time.Millisecond)
	p.close()
	term.close()
	for _, line := range regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]|[\r\n]`).Split(term.shown(), -1) {
		require.LessOrEqual(t, text.StringWidth(strings.TrimSpace(line))+len("1h30m"), columns, line)
		require.NotContains(t, line, "?", "a percentage that is not known")
		require.NotRegexp(t, `\d\.\d+s`, line)
	}
}
