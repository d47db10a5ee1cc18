package process

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewServer_FailsWithoutReexec(t *testing.T) {
	reexecCalled.Store(false)
	defer reexecCalled.Store(true)
	_, err := NewServer("sleep", nil, 1)
	require.ErrorIs(t, err, ErrNoReexec)
}

func TestSweep_SparesTheLiving(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // not other runs' directories
	s, err := NewServer("sleep", nil, 0)
	require.NoError(t, err)
	s.Command = func() (*exec.Cmd, error) {
		cmd := exec.Command("sleep", "1000")
		cmd.Dir = s.Dir.Root
		return cmd, nil
	}
	s.Ready = func(context.Context) error { return nil }
	require.NoError(t, s.Start(t.Context()))
	defer s.Stop(context.Background())
	unlock, err := LockSweep()
	require.NoError(t, err)
	require.NoError(t, Sweep())
	unlock()
	require.True(t, s.Proc.Alive())
	require.DirExists(t, s.Dir.Root)
}
