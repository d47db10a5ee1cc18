package worker

import (
	"context"
	"testing"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) {
	Reexec()
	testenv.Main(m)
}

// patient is a context for what succeeds, however long a slow machine takes.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// twoResources is a workload of two resources.
type twoResources struct{ workload.Workload }

func (twoResources) Resources() []string { return []string{"a", "b"} }
