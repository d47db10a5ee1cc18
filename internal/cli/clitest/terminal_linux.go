package clitest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Columns is how many columns a Terminal has.
const Columns = 80

// Terminal is a pseudo-terminal of Columns columns. It keeps what is written to TTY.
type Terminal struct {
	TTY    *os.File
	master *os.File
	read   chan struct{} // closed when all has been read

	mu    sync.Mutex
	bytes []byte
}

// NewTerminal opens a Terminal. The caller must call Close.
func NewTerminal(t *testing.T) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: Columns}))
	term := &Terminal{TTY: tty, master: master, read: make(chan struct{})}
	go func() {
		defer close(term.read)
		_, _ = io.Copy(term, master) // ends with EIO when the last writer has gone
	}()
	return term
}

// Write implements io.Writer for what is read.
func (t *Terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p...)
	return len(p), nil
}

// Shown is what was written so far, with escape sequences.
func (t *Terminal) Shown() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.bytes)
}

// Close closes the terminal when all that was written has been read.
func (t *Terminal) Close() {
	_ = t.TTY.Close()
	<-t.read
	_ = t.master.Close()
}

// Lines are the lines that were written so far, without color.
func (t *Terminal) Lines() []string {
	lines := strings.Split(text.StripEscape(t.Shown()), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \r")
	}
	return lines
}
