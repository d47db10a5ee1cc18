package process

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewServer_FailsWithoutReexec(t *testing.T) {
	reexecCalled.Store(false)
	defer reexecCalled.Store(true)
	_, err := NewServer("sleep", nil, 1)
	require.ErrorIs(t, err, errNoReexec)
}

// A janitor sweeps the TMPDIR that it was started in, so a program that goes on in another has one more.
func TestNewDir_HasAJanitorInEachTMPDIR(t *testing.T) {
	for range 2 {
		t.Setenv("TMPDIR", t.TempDir())
		dir, err := NewDir()
		require.NoError(t, err)
		require.NoError(t, dir.Remove())
		require.NotNil(t, janitors.inputs[os.TempDir()])
	}
}

func TestSweep_SparesTheLiving(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // not other runs' directories
	s, err := NewServer("sleep", nil, 0)
	require.NoError(t, err)
	command := func() (*exec.Cmd, error) {
		cmd := exec.Command("sleep", "1000")
		cmd.Dir = s.Dir().Path("")
		return cmd, nil
	}
	require.NoError(t, s.Start(t.Context(), Program{Command: command, Ready: func(context.Context) error { return nil }}))
	defer s.Stop(context.Background())
	unlock, err := lockSweep()
	require.NoError(t, err)
	require.NoError(t, sweep())
	unlock()
	require.True(t, s.proc.Alive())
	require.DirExists(t, s.dir.root)
}

func TestReservePort_IsExclusiveUntilReleased(t *testing.T) {
	p, err := reservePort()
	require.NoError(t, err)
	seen := map[int]bool{p.number: true}
	for range 200 {
		other, err := reservePort()
		require.NoError(t, err)
		defer other.release()
		require.False(t, seen[other.number])
		seen[other.number] = true
	}
	require.NoError(t, p.release())
	require.NoError(t, p.release())
}
