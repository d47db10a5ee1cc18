package child

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/pause"
)

func TestProcess_IsPausedResumedAndKilled(t *testing.T) {
	p, err := Start(exec.Command("sleep", "1000"))
	require.NoError(t, err)
	require.NoError(t, p.Pause())
	stopped, err := pause.Stopped(p.Pid())
	require.NoError(t, err)
	require.True(t, stopped)
	require.NoError(t, p.Resume())
	require.NoError(t, p.Kill())
	require.False(t, p.Wait().Success())
	require.NoError(t, p.Kill(), "it has ended already")
	require.NoError(t, p.Signal(syscall.SIGTERM), "it has ended already")
}

func TestStart_FailsForAProgramThatIsNotThere(t *testing.T) {
	_, err := Start(exec.Command("/nowhere/to/be/found"))
	require.Error(t, err)
}
