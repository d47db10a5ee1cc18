package testenv

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChild_IsPausedResumedAndKilled(t *testing.T) {
	c, err := StartChild(exec.Command("sleep", "1000"))
	require.NoError(t, err)
	require.NoError(t, c.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		stopped, err := isStopped(c.Pid())
		return err == nil && stopped
	}, startBound, pollInterval)
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
