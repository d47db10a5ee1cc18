package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// The command has the terminal: what is typed there reaches it and not fencectl. When the
// terminal stops the command, fencectl stops as well, as a shell expects, and both go on together.
func TestExec_TheCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	_, flags := onEtcd(t)
	screen, terminal := openTerminal(t)
	cmd := clitest.Child(t, nil, execArgs(flags, "r", "sh", "-c", `
		trap "echo interrupted" INT; trap "exit 4" QUIT
		echo ready $$; while :; do read line; done`)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	require.NoError(t, terminal.Close())
	shown := bufio.NewScanner(screen)
	shows := func(text string) string {
		for shown.Scan() {
			if _, rest, found := strings.Cut(shown.Text(), text); found {
				return strings.TrimSpace(rest)
			}
		}
		require.FailNow(t, "the terminal never shows "+text)
		return ""
	}
	typed := func(key string) {
		_, err := screen.WriteString(key)
		require.NoError(t, err)
	}

	command := shows("ready")
	foreground, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPGRP)
	require.NoError(t, err)
	require.Equal(t, command, fmt.Sprint(foreground))
	typed("\x03")
	shows("interrupted")
	typed("\x1a")
	require.Eventually(t, func() bool { return processState(t, cmd.Process.Pid) == "T" }, time.Minute, 10*time.Millisecond)
	foreground, err = unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPGRP)
	require.NoError(t, err)
	require.Equal(t, cmd.Process.Pid, foreground, "fencectl has the terminal while the command is stopped")
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.Eventually(t, func() bool {
		now, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPGRP)
		return err == nil && fmt.Sprint(now) == command
	}, time.Minute, 10*time.Millisecond)
	typed("\x03")
	shows("interrupted")
	typed("\x1c")
	require.Equal(t, 4, clitest.ExitCode(t, cmd.Wait))
}

// processState is the state of a process, as T for one that is stopped.
func processState(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(stat), ") ")
	require.True(t, found)
	return rest[:1]
}

// A user at a terminal sees why the command does not begin.
func TestExec_SaysOnATerminalThatItWaits(t *testing.T) {
	t.Parallel()
	prefix, flags := onEtcd(t)
	first, err := newLocker(t, etcdserver.Client(t), etcd.Config{Prefix: prefix}).Acquire(t.Context(), "r")
	require.NoError(t, err)
	terminal := clitest.NewTerminal(t)
	cmd := clitest.Child(t, nil, execArgs(flags, "r", "true")...)
	cmd.Stderr = terminal.TTY
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		return strings.Contains(terminal.Shown(), `waiting for the lock of r; "fencectl locks queue" shows who has it`)
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, first.Release(t.Context()))
	require.Zero(t, clitest.ExitCode(t, cmd.Wait))
	terminal.Close()
}
