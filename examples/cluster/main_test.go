package main

import (
	"bufio"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli/clitest"
)

func TestMain(m *testing.M) {
	clitest.Reexec(func() { main(); os.Exit(0) })
	os.Exit(m.Run())
}

// Or nightly takes it for passed.
func TestInterrupt_IsInconclusive(t *testing.T) {
	t.Parallel()
	cmd := clitest.Child(t, nil, "-end")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	require.Equal(t, exitInconclusive, clitest.ExitCode(t, cmd.Wait))
}
