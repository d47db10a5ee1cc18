// Package clitest runs command lines in tests: in the test's process, and in a child process.
package clitest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

// childVariable marks a child of the test binary that is the command.
const childVariable = "FENCEKIT_TEST_BE_COMMAND"

// Reexec must be called first in TestMain: in a process that Child made it calls main, which
// must not return.
func Reexec(main func()) {
	if os.Getenv(childVariable) != "" {
		main()
	}
}

// Child returns the command as a child process that is not started yet, with additional
// environment variables.
func Child(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), childVariable+"=1", "GORACE=atexit_sleep_ms=0") // or the race detector sleeps for a second at exit
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// ExitCode calls cmd.Run or cmd.Wait, and returns the exit code.
func ExitCode(t *testing.T, wait func() error) int {
	t.Helper()
	err := wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}

// Ending is the exit code and the output of a command.
type Ending struct {
	Code           int
	Stdout, Stderr string
}

// Run runs a command line in this process.
func Run(t *testing.T, root *cobra.Command, args ...string) Ending {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), root, args, &stdout, &stderr)
	return Ending{code, stdout.String(), stderr.String()}
}
