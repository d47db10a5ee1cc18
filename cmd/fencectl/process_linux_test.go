package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

// What could not be handed over is no success.
func TestProcess_FullDiskIsInconclusive(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	dsn := migrated(t)
	for _, args := range [][]string{{"version"}, {"version", "-o", "json"}, {"migrate", "get"}, {"migrate", "status", "--database-url", dsn}} {
		var stderr bytes.Buffer
		require.Equal(t, cli.ExitInconclusive, cli.Run(t.Context(), newRoot(), args, full, &stderr))
		require.Contains(t, stderr.String(), "can't write the output")
	}
}

// The first signal can't end a write to a pipe that is not read; another one has to.
func TestProcess_SecondSignalEndsItAtOnce(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	_, err = unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, os.Getpagesize())
	require.NoError(t, err)
	cmd := clitest.Child(t, nil, "migrate", "get")
	cmd.Stdout = write
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	_, err = read.Read(make([]byte, 1)) // it listens to signals, and writes
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	require.Eventually(t, func() bool {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-ended:
			return true
		default:
			return false
		}
	}, time.Minute, 10*time.Millisecond)
	require.True(t, cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled())
}

func TestProcess_BoldOnATerminalOnly(t *testing.T) {
	t.Parallel()
	plain, bold := "FENCECTL  ", "\x1b[1mFENCECTL  "
	require.Contains(t, onTerminal(t, "NO_COLOR=", "TERM=xterm"), bold)
	for _, env := range [][]string{{"NO_COLOR=1", "TERM=xterm"}, {"NO_COLOR=", "TERM=dumb", "FORCE_COLOR=1"}, {"NO_COLOR=0", "TERM=xterm", "FORCE_COLOR=1"}} {
		out := onTerminal(t, env...)
		require.Contains(t, out, plain, env)
		require.NotContains(t, out, "\x1b")
	}
	cmd := clitest.Child(t, []string{"NO_COLOR=", "TERM=xterm", "FORCE_COLOR=1"}, "version")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NotContains(t, string(out), "\x1b")
}

// onTerminal is what "version" writes to a terminal.
func onTerminal(t *testing.T, env ...string) string {
	t.Helper()
	screen, terminal := openTerminal(t)
	cmd := clitest.Child(t, env, "version")
	cmd.Stdout = terminal
	require.NoError(t, cmd.Run())
	require.NoError(t, terminal.Close())
	out, err := io.ReadAll(screen)
	require.ErrorIs(t, err, syscall.EIO) // how Linux says that the other side is closed
	return string(out)
}

// openTerminal makes a pseudo-terminal: what is written to terminal can be read
// from screen.
func openTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, screen.Close()) })
	fd := int(screen.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	return screen, terminal
}
