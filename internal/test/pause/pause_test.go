package pause_test

import (
	"bufio"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/pause"
)

const childEnv = "FENCEKIT_TEST_PAUSE_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
	}
	os.Exit(m.Run())
}

func child() {
	os.Stdout.WriteString("before\n")
	if err := pause.Self(); err != nil {
		os.Exit(1)
	}
	os.Stdout.WriteString("after\n")
	os.Exit(0)
}

// If the caller ran on after a pause, every test with a pause would be vacuous.
func TestSelf_NothingRunsPastIt(t *testing.T) {
	for range 10 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=1")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		require.Equal(t, "before", lines.Text())
		require.Eventually(t, func() bool {
			stopped, err := pause.Stopped(cmd.Process.Pid)
			return err == nil && stopped
		}, time.Minute, time.Millisecond)

		after := make(chan string, 1)
		go func() {
			lines.Scan()
			after <- lines.Text()
		}()
		select {
		case text := <-after:
			t.Fatalf("ran past the pause: %q", text)
		case <-time.After(20 * time.Millisecond): // a stopped process stays silent however long this is
		}
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		require.Equal(t, "after", <-after)
		require.NoError(t, cmd.Wait())
	}
}
