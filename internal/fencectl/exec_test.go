//go:build unix

package fencectl

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
)

// execArgs is a command line of "exec" with the test's own prefix, and a lock that outlives a pause of the machine.
func execArgs(flags []string, resource string, command ...string) []string {
	return append(append(append([]string{"exec", resource, "--ttl", "60s"}, flags...), "--"), command...)
}

func TestExec_RunsTheCommandUnderItsGrant(t *testing.T) {
	onEach(t, func(t *testing.T, w world) {
		got := fencectlProcess(t, nil, execArgs(w.flags, "sku/42", "sh", "-c", `echo "$FENCEKIT_GRANT $FENCEKIT_TOKEN $FENCEKIT_EPOCH $FENCEKIT_RESOURCE $FENCEKIT_HOLDER"; "$0" "$@"`, "cat", "/dev/null")...)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		require.Empty(t, got.Stderr)
		words := strings.Fields(got.Stdout)
		grant, err := fence.ParseGrant(words[0])
		require.NoError(t, err)
		require.Equal(t, []string{grant.Token.String(), "1", "sku/42", grant.Holder}, words[1:])
		require.Equal(t, "sku/42", grant.Resource)
		require.Empty(t, queued(t, "sku/42", w.flags), "the lock is released")

		_, err = w.newLocker().Acquire(t.Context(), "sku/42")
		require.NoError(t, err)
		require.Equal(t, exitNotAcquired, fencectlProcess(t, nil, execArgs(append(w.flags, "--wait", "0s"), "sku/42", "true")...).Code)
	})
}

func TestExec_ReturnsTheCommandsExitCode(t *testing.T) {
	t.Parallel()
	_, flags := onEtcd(t)
	notRunnable := filepath.Join(t.TempDir(), "script")
	writeProgram(t, notRunnable, []byte("#!/no/such/interpreter\n"))
	for _, c := range []struct {
		code    int
		stderr  string
		command []string
	}{
		{7, "", []string{"sh", "-c", "exit 7"}},
		{cli.ExitUsage, "", []string{"sh", "-c", "exit 64"}},
		{128 + int(syscall.SIGTERM), "", []string{"sh", "-c", "kill -TERM $$"}},
		{128 + int(syscall.SIGKILL), "", []string{"sh", "-c", "kill -KILL $$"}},
		{exitNotFound, "not found", []string{"no-such-command"}},
		{exitNotRun, "permission denied", []string{"/etc/passwd"}},
		{exitNotRun, "no such file", []string{notRunnable}},
	} {
		got := fencectlProcess(t, nil, execArgs(flags, "r", c.command...)...)
		require.Equal(t, c.code, got.Code, c.command)
		require.Contains(t, got.Stderr, c.stderr)
		require.Equal(t, c.stderr == "", got.Stderr == "", got.Stderr)
	}
}

// lines starts a command under "exec" and returns what it writes, line by line.
func lines(t *testing.T, flags []string, resource, script string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := clitest.Child(t, nil, execArgs(flags, resource, "sh", "-c", script)...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	return cmd, bufio.NewScanner(stdout)
}

func next(t *testing.T, from *bufio.Scanner) string {
	t.Helper()
	require.True(t, from.Scan())
	return from.Text()
}

func TestExec_ForwardsSignals(t *testing.T) {
	t.Parallel()
	_, flags := onEtcd(t)
	cmd, out := lines(t, flags, "r", `
		for s in INT TERM QUIT USR1 USR2; do trap "echo $s" $s; done
		trap 'echo HUP; exit 9' HUP
		echo ready; while :; do sleep 0.01; done`)
	require.Equal(t, "ready", next(t, out))
	for s, name := range map[syscall.Signal]string{
		syscall.SIGINT: "INT", syscall.SIGTERM: "TERM", syscall.SIGQUIT: "QUIT",
		syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2",
	} {
		require.NoError(t, cmd.Process.Signal(s))
		require.Equal(t, name, next(t, out))
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	require.Equal(t, "HUP", next(t, out))
	require.False(t, out.Scan())
	require.Equal(t, 9, clitest.ExitCode(t, cmd.Wait), "not that of an interrupt")
}

// endingLease is lost once done is closed, and has this much left until then.
type endingLease struct {
	fence.Lease
	done chan struct{}
	left time.Duration
}

func (l endingLease) Done() <-chan struct{} { return l.done }
func (endingLease) Err() error              { return fence.ErrLeaseLost }
func (l endingLease) Remaining() time.Duration {
	select {
	case <-l.done:
		return 0
	default:
		return l.left
	}
}

// The command is asked to end as soon as the lock is lost, and before it runs out; then it is killed, with what it started.
func TestExec_EndsTheCommandWithTheLock(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"asked":  `trap "exit 0" TERM; : > "$0"; while :; do sleep 0.01; done`,
		"killed": `trap "" TERM; (: > "$0"; while :; do sleep 0.01; done)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready := filepath.Join(t.TempDir(), "ready")
			require.NoError(t, syscall.Mkfifo(ready, 0o600))
			lease := endingLease{done: make(chan struct{}), left: time.Hour}
			go func() {
				defer close(lease.done)
				_, _ = os.ReadFile(ready) // waits for the command
			}()
			grace := time.Minute
			if name == "killed" {
				grace = time.Millisecond
			}
			err := runUnder(lease, exec.Command("sh", "-c", script, ready), nil, grace)
			require.ErrorIs(t, err, fence.ErrLeaseLost)
		})
	}
	lease := endingLease{done: make(chan struct{}), left: time.Minute}
	require.ErrorIs(t, runUnder(lease, exec.Command("sleep", "1h"), nil, time.Minute), fence.ErrLeaseLost, "not renewed")
}

func TestExec_ClaimsIfAsked(t *testing.T) {
	t.Parallel()
	_, flags := onEtcd(t)
	dsn := migrated(t)
	flags = append(flags, "--database-url", dsn)
	claimed := func() (n int) {
		require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "select count(*) from fence.resource").Scan(&n))
		return n
	}
	require.Equal(t, cli.ExitOK, fencectlProcess(t, nil, execArgs(flags, "r", "true")...).Code)
	require.Zero(t, claimed())
	got := fencectlProcess(t, nil, execArgs(append(flags, "--claim"), "r", "sh", "-c", "echo $FENCEKIT_TOKEN")...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	var token string
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "select token::text from fence.resource where name = 'r'").Scan(&token))
	require.Equal(t, token+"\n", got.Stdout)

	require.NoError(t, execute(t, connect(t, dsn), "update fence.resource set token = token + 1000000000"))
	got = fencectlProcess(t, nil, execArgs(append(flags, "--claim"), "r", "echo", "ran")...)
	require.Equal(t, cli.ExitNotReady, got.Code)
	require.Empty(t, got.Stdout)
	require.Contains(t, got.Stderr, "was superseded by")
}

// writeProgram writes a program. No child process is started meanwhile, by any other test: it would have the
// file open for writing until it executes its own program, and what is open for writing can't be executed.
func writeProgram(t *testing.T, path string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, text, 0o755))
}
