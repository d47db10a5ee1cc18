package main

import (
	"bytes"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv"
)

func TestProcess_ExitCodes(t *testing.T) {
	t.Parallel()
	dsn := testenv.Database(t)
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitNotReady, []string{"migrate", "status", "--database-url", dsn}},
		{exitOK, []string{"migrate", "up", "--database-url", dsn}},
		{exitOK, []string{"migrate", "status", "--database-url", dsn}},
		{exitOK, []string{"version"}},
		{exitUsage, []string{}},
		{exitUsage, []string{"migrate", "sideways"}},
	} {
		cmd := child(t, nil, c.args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.Equal(t, c.code, finish(t, cmd.Run), "%v: %s", c.args, stderr.String())
	}
}

func TestProcess_SignalIsInconclusiveAndUndoesTheTransaction(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dsn := testenv.Database(t)
			release := block(t, dsn)
			cmd := child(t, nil, "migrate", "up", "--timeout", "10m", "--database-url", dsn)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.NoError(t, cmd.Start())
			awaitBlocked(t, dsn)
			require.NoError(t, cmd.Process.Signal(signal))
			require.Equal(t, exitInconclusive, finish(t, cmd.Wait), stderr.String())
			require.Contains(t, stderr.String(), "fencectl: interrupted: ")
			release()
			require.Equal(t, exitNotReady, fencectl(t, "migrate", "status", "--database-url", dsn).code)
		})
	}
}

// awaitBlocked returns once fencectl waits for a lock.
func awaitBlocked(t *testing.T, dsn string) {
	t.Helper()
	conn := connect(t, dsn)
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, conn.QueryRow(t.Context(), `select count(*) from pg_stat_activity
			where datname = current_database() and application_name = 'fencectl' and wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == 1
	}, time.Minute, 10*time.Millisecond)
}

// What could not be handed over is no success.
func TestProcess_FullDiskIsInconclusive(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	dsn := migrated(t)
	for _, args := range [][]string{{"version"}, {"version", "-o", "json"}, {"migrate", "get"}, {"migrate", "status", "--database-url", dsn}} {
		var stderr bytes.Buffer
		require.Equal(t, exitInconclusive, run(t.Context(), args, full, &stderr))
		require.Contains(t, stderr.String(), "can't write the output")
	}
}

func TestProcess_BoldOnATerminalOnly(t *testing.T) {
	t.Parallel()
	plain, bold := "FENCECTL  ", "\x1b[1mFENCECTL  "
	require.Contains(t, onTerminal(t, "NO_COLOR=", "TERM=xterm"), bold)
	for _, env := range [][]string{{"NO_COLOR=1", "TERM=xterm"}, {"NO_COLOR=", "TERM=dumb"}, {"NO_COLOR=0", "TERM=xterm", "FORCE_COLOR=1"}} {
		out := onTerminal(t, env...)
		require.Contains(t, out, plain, env)
		require.NotContains(t, out, "\x1b")
	}
	cmd := child(t, []string{"NO_COLOR=", "TERM=xterm", "FORCE_COLOR=1"}, "version")
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NotContains(t, string(out), "\x1b")
}

// onTerminal is what "version" writes to a terminal.
func onTerminal(t *testing.T, env ...string) string {
	t.Helper()
	screen, terminal := openTerminal(t)
	cmd := child(t, env, "version")
	cmd.Stdout = terminal
	require.NoError(t, cmd.Run())
	require.NoError(t, terminal.Close())
	out, err := io.ReadAll(screen)
	require.ErrorIs(t, err, syscall.EIO) // how Linux says that the other side is closed
	return string(out)
}
