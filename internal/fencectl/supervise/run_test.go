//go:build unix

package supervise

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	RunHelper()
	os.Exit(m.Run())
}

// remaining is a lease on which this much is always left.
type remaining time.Duration

func (r remaining) Remaining() time.Duration { return time.Duration(r) }
func (remaining) Done() <-chan struct{}      { return nil }

// touch is a command that makes a file.
func touch(t *testing.T, file string) Command {
	t.Helper()
	path, err := exec.LookPath("touch")
	require.NoError(t, err)
	c := Command{Path: path, Args: []string{"touch", file}, Signals: make(chan os.Signal, 16), Grace: time.Second}
	t.Cleanup(func() { signal.Stop(c.Signals) })
	return c
}

func TestRun_LostBeforeTheCommandBegins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	ending, err := Run(remaining(0), touch(t, file))
	require.NoError(t, err)
	require.True(t, ending.Lost)
	require.NoFileExists(t, file)

	ending, err = Run(remaining(time.Minute), touch(t, file))
	require.NoError(t, err)
	require.Equal(t, Ending{}, ending)
	require.FileExists(t, file)
}

// losing is a lease that is lost once done is closed.
type losing struct{ done chan struct{} }

func (l losing) Remaining() time.Duration {
	select {
	case <-l.done:
		return 0
	default:
		return 2 * time.Minute
	}
}

func (l losing) Done() <-chan struct{} { return l.done }

// A command is asked to end as soon as the lock is lost, and not only killed at the deadline.
func TestRun_LostWhileTheCommandRuns(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready")
	require.NoError(t, syscall.Mkfifo(ready, 0o600))
	path, err := exec.LookPath("sh")
	require.NoError(t, err)
	c := Command{Path: path, Args: []string{"sh", "-c", `trap "exit 7" TERM; : > "$0"; while :; do sleep 0.1; done`, ready}, Signals: make(chan os.Signal, 16), Grace: time.Minute}
	t.Cleanup(func() { signal.Stop(c.Signals) })
	lease := losing{make(chan struct{})}
	go func() {
		defer close(lease.done)
		_, _ = os.ReadFile(ready) // waits for the command
	}()
	ending, err := Run(lease, c)
	require.NoError(t, err)
	require.Equal(t, Ending{Code: 7, Lost: true}, ending)
}

// The clock of a lease may stand still while the machine is suspended; that of the deadline
// goes on.
func TestExtend_LeavesADeadlineThatHasPassed(t *testing.T) {
	g, err := startGroup(touch(t, "unused"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.ready.Close())
		<-g.states
	})
	passed := now().add(-time.Millisecond)
	j := &job{lease: remaining(time.Minute), grace: time.Second, group: g, deadline: passed}
	j.extend()
	require.True(t, j.lost)
	require.Equal(t, passed, j.deadline)
}
