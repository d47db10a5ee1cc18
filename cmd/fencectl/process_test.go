package main

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

func TestProcess_ExitCodes(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	for _, c := range []struct {
		code int
		args []string
	}{
		{cli.ExitNotReady, []string{"migrate", "status", "--database-url", dsn}},
		{cli.ExitOK, []string{"migrate", "up", "--database-url", dsn}},
		{cli.ExitOK, []string{"migrate", "status", "--database-url", dsn}},
		{cli.ExitOK, []string{"version"}},
		{cli.ExitUsage, []string{}},
		{cli.ExitUsage, []string{"migrate", "sideways"}},
	} {
		cmd := clitest.Child(t, nil, c.args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		require.Equal(t, c.code, clitest.ExitCode(t, cmd.Run), "%v: %s", c.args, stderr.String())
	}
}

func TestProcess_SignalIsInconclusiveAndUndoesTheTransaction(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			dsn := pgserver.Database(t)
			release := block(t, dsn)
			cmd := clitest.Child(t, nil, "migrate", "up", "--timeout", "10m", "--database-url", dsn)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			require.NoError(t, cmd.Start())
			awaitBlocked(t, dsn)
			require.NoError(t, cmd.Process.Signal(signal))
			require.Equal(t, cli.ExitInconclusive, clitest.ExitCode(t, cmd.Wait), stderr.String())
			require.Contains(t, stderr.String(), "fencectl: interrupted: ")
			release()
			require.Equal(t, cli.ExitNotReady, fencectl(t, "migrate", "status", "--database-url", dsn).Code)
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
