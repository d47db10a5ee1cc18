package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/internal/cli"
)

// newTerminal opens a pseudo-terminal of 80 columns. lines closes it, and returns what was written.
func newTerminal(t *testing.T) (tty *os.File, lines func() []string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	var shown bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&shown, master) // ends with EIO when the last writer has gone
	}()
	return tty, func() (lines []string) {
		_ = tty.Close()
		<-read
		return strings.Split(strings.ReplaceAll(shown.String(), "\r", ""), "\n")
	}
}

// row is a row of columns.
type row struct{ name, changes, story string }

func (r row) Columns() any {
	return struct{ Name, Changes, HandOverP99, Story string }{r.name, r.changes, "", r.story}
}

// Names come from applications.
func TestJSON_IsEscapedOnATerminalAlone(t *testing.T) {
	t.Parallel()
	rows := slices.Values([]string{"\x1b[2J\u009b"})
	tty, lines := newTerminal(t)
	require.NoError(t, cli.WriteLines(tty, rows))
	require.Equal(t, `"\u001b[2J\u009b"`, lines()[0])
	var file strings.Builder
	require.NoError(t, cli.WriteLines(&file, rows))
	require.Equal(t, "\"\\u001b[2J\u009b\"\n", file.String())
}

// A cell stays in its place, whatever it has: a line break would forge a row, and a terminal obeys ESC.
func TestTable_EscapesWhatATerminalWouldObey(t *testing.T) {
	t.Parallel()
	rows := []row{{"a\nb", "\x1b[2J größe", "\u202e\u0085\x00\\"}}
	var b strings.Builder
	require.NoError(t, cli.WriteTable(&b, rows))
	require.Equal(t, "NAME  CHANGES        HAND OVER P99  STORY\n"+`a\nb  \x1b[2J größe  -              \u202e\u0085\x00\`+"\n", b.String())
}
