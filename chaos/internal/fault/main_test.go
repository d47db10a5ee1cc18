package fault_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv"
)

// workerVar makes a process a worker of these tests.
const workerVar = "FENCEKIT_TEST_FAULT_WORKER"

func TestMain(m *testing.M) {
	testenv.Reexec()
	if os.Getenv(workerVar) != "" {
		work()
	}
	testenv.Main(m)
}

// work follows commands, one a line, and prints what it did.
func work() {
	var armed, then string
	stopper := os.NewFile(3, "stopper")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch words := strings.Fields(lines.Text()); words[0] {
		case "ping":
			fmt.Println("pong")
		case "stall":
			go func() { _ = pause.StopTheWorld(stopper) }()
		case "arm":
			armed, then = words[1], words[2]
			fmt.Println("armed")
		case "come": // to a point
			if words[1] == armed && then == string(fault.ThenKill) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
			if words[1] == armed {
				armed = ""
				_ = pause.Self()
			}
			fmt.Println("passed")
		}
	}
	os.Exit(0)
}

// patient is a context for what succeeds, however long a slow machine takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// brief is a context for what must not happen.
func brief(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// inject injects a fault, and returns what reverts it.
func inject(t testing.TB, f fault.Fault, s fault.Site) (revert func()) {
	t.Helper()
	undo, err := f.Inject(patient(t), s)
	require.NoError(t, err)
	return func() {
		t.Helper()
		require.NoError(t, undo(patient(t)))
	}
}

// injectOnce injects a fault that leaves nothing to revert.
func injectOnce(t testing.TB, f fault.Fault, s fault.Site) {
	t.Helper()
	undo, err := f.Inject(patient(t), s)
	require.NoError(t, err)
	require.Nil(t, undo)
}

// injection is the result of Inject.
type injection struct {
	revert func(context.Context) error
	err    error
}

// begin injects a fault while the test goes on.
func begin(ctx context.Context, f fault.Fault, s fault.Site) <-chan injection {
	done := make(chan injection, 1)
	go func() {
		revert, err := f.Inject(ctx, s)
		done <- injection{revert, err}
	}()
	return done
}

func requireMissed(ctx context.Context, t testing.TB, f fault.Fault, s fault.Site) {
	t.Helper()
	undo, err := f.Inject(ctx, s)
	require.ErrorIs(t, err, fault.ErrMissed)
	require.Nil(t, undo)
}
