package testenv

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pause"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

func TestChild_IsPausedResumedAndKilled(t *testing.T) {
	c, err := StartChild(exec.Command("sleep", "1000"))
	require.NoError(t, err)
	require.NoError(t, c.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		stopped, err := pause.Stopped(c.Pid())
		return err == nil && stopped
	}, process.StartBound, process.PollInterval)
	require.NoError(t, c.Resume())
	require.NoError(t, c.Kill())
	require.False(t, c.Wait().Success())
	require.NoError(t, c.Kill(), "it has ended already")
	require.NoError(t, c.Signal(syscall.SIGTERM), "it has ended already")
}

func TestStartChild_FailsForAProgramThatIsNotThere(t *testing.T) {
	_, err := StartChild(exec.Command("/nowhere/to/be/found"))
	require.Error(t, err)
}
