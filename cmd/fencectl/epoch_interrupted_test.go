package main

import (
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

// stopAtCommit makes raises in a database wait at COMMIT until resume is called; awaitStop returns
// when one waits. Dry runs don't get there.
func (e *epochOf) stopAtCommit(i int) (awaitStop, resume func()) {
	e.t.Helper()
	conn := connect(e.t, e.dsns[i])
	require.NoError(e.t, execute(e.t, conn, `create function wait_here() returns trigger language plpgsql as 'begin perform pg_advisory_xact_lock(7); return null; end';
		create constraint trigger wait_here after insert on fence.epoch_raise deferrable initially deferred for each row execute function wait_here()`))
	_, err := conn.Exec(e.t.Context(), "select pg_advisory_lock(7)")
	require.NoError(e.t, err)
	awaitStop = func() {
		e.t.Helper()
		require.Eventually(e.t, func() bool {
			var stopped bool
			err := conn.QueryRow(e.t.Context(), "select exists (select from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database()))").Scan(&stopped)
			return err == nil && stopped
		}, time.Minute, 10*time.Millisecond)
	}
	return awaitStop, func() {
		e.t.Helper()
		_, err := conn.Exec(e.t.Context(), "select pg_advisory_unlock(7)")
		require.NoError(e.t, err)
	}
}

// Between two databases another bump overtakes this one, which begins anew and then finds that it
// can't write: it says what its first attempt wrote.
func TestEpochBump_SaysWhatAnEarlierAttemptWrote(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 2)
	awaitStop, resume := e.stopAtCommit(0)
	ending := make(chan clitest.Ending, 1)
	go func() { ending <- e.run("bump", "--reason", "x") }()
	awaitStop()
	e.raise(1, 50)
	e.put("fifty")
	resume()
	got := <-ending
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stderr, "a key of etcd holds no epoch: with --trust databases it becomes 51")
	require.NotContains(t, got.Stderr, "Nothing was written")
	require.Regexp(t, `Another bump interfered\. Before, this one had set the epoch to 2 in database [^,]+\. Until a bump succeeds, claims there may be rejected \(epoch behind\)`, got.Stderr)
	require.Equal(t, []int64{0, 2, 50}, numbers(e.show(cli.ExitViolated)))
	require.Equal(t, []int64{51, 51, 51}, numbers(e.bump(cli.ExitOK, "--trust", "databases")))
}

// Two URLs lead to one database: it is raised once.
func TestEpochBump_OfOneDatabaseUnderTwoNames(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 1)
	u, err := url.Parse(e.dsns[0])
	require.NoError(t, err)
	u.Host = "localhost:" + u.Port()
	e.flags = append(e.flags, "--database-url", u.String())
	require.Equal(t, []int64{2, 2, 2}, numbers(e.bump(cli.ExitOK)))
	var raises int
	require.NoError(t, e.pool(0).QueryRow(t.Context(), "select count(*) from fence.epoch_raise").Scan(&raises))
	require.Equal(t, 1, raises)
}

// An operator interrupts a bump while a database commits: the next bump completes it.
func TestEpochBump_InterruptedAtCommitIsResumed(t *testing.T) {
	t.Parallel()
	e := newEpochOf(t, 2)
	awaitStop, resume := e.stopAtCommit(1)
	cmd := clitest.Child(t, nil, append([]string{"epoch", "bump", "--reason", "x"}, e.flags...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	awaitStop()
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.NotEqual(t, cli.ExitOK, clitest.ExitCode(t, cmd.Wait))
	require.Regexp(t, `The epoch is 2 in database [^;]+; this write may have taken effect`, stderr.String())
	resume()
	require.Equal(t, []int64{3, 3, 3}, numbers(e.bump(cli.ExitOK)))
}
