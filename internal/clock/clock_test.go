package clock_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/clock"
)

const childEnv = "FENCEKIT_TEST_CLOCK_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		fmt.Print(clock.Now())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// What another process read between two readings of this one lies between them.
func TestNow_IsTheSameInAllProcesses(t *testing.T) {
	for range 5 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"=1")
		before := clock.Now()
		out, err := cmd.Output()
		after := clock.Now()
		require.NoError(t, err)
		theirs, err := strconv.ParseInt(string(out), 10, 64)
		require.NoError(t, err)
		require.Less(t, before, theirs)
		require.Less(t, theirs, after)
	}
}
