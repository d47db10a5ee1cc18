package environment

import (
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) {
	worker.Reexec(passer{})
	testenv.Main(m)
}
