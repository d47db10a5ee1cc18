package command

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv"
)

// asCommand makes a child of the test binary be fencectl-chaos.
const asCommand = "FENCECTL_TEST_BE_FENCECTL_CHAOS"

func TestMain(m *testing.M) {
	worker.Reexec()
	if os.Getenv(asCommand) != "" {
		Main()
	}
	_ = os.Unsetenv("FENCEKIT_OUTPUT") // a developer's settings are no part of the tests
	testenv.Main(m)
}

// ending is what a run of the command left.
type ending struct {
	code           int
	stdout, stderr string
}

// fencectl runs the command line in this process.
func fencectl(t *testing.T, args ...string) ending {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), newRoot(), args, &stdout, &stderr)
	return ending{code, stdout.String(), stderr.String()}
}

// child is fencectl-chaos as a process of its own, with more environment variables.
func child(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0") // no second of waiting at exit
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// finish waits for a child that has been started, or runs it.
func finish(t *testing.T, wait func() error) int {
	t.Helper()
	err := wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	require.NoError(t, err)
	return 0
}
