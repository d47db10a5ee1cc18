package command

import (
	"os"
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) {
	worker.Reexec()
	clitest.Reexec(Main)
	_ = os.Unsetenv("FENCEKIT_OUTPUT") // a developer's settings are no part of the tests
	testenv.Main(m)
}

// fencectl runs the command line in this process.
func fencectl(t *testing.T, args ...string) clitest.Ending {
	t.Helper()
	return clitest.Run(t, newRoot(), args...)
}
