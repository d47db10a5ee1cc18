package chaos

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/fencekit/fencekit/internal/testenv"
)

// ErrConfig: a Config, or how the binary calls this package, is not as it has to
// be.
var ErrConfig = errors.New("chaos: invalid configuration")

// registered are the workloads that worker processes of this binary can do.
var registered struct {
	mu        sync.Mutex
	workloads []Workload
}

// Reexec must be the first call of every main() whose binary runs chaos, with all
// the workloads that it runs beside the built-in one. In a child that was started
// to be a worker, or a server, it is just that and never returns.
func Reexec(workloads ...Workload) {
	testenv.Reexec()
	all := append([]Workload{Stock{}}, workloads...)
	if text := os.Getenv(workerVar); text != "" {
		os.Exit(beWorker(text, all))
	}
	registered.mu.Lock()
	defer registered.mu.Unlock()
	registered.workloads = all
}

// Main is a package's whole TestMain: it calls Reexec, and runs the tests. It never
// returns.
func Main(m *testing.M, workloads ...Workload) {
	Reexec(workloads...)
	testenv.Main(m)
}

// isRegistered reports whether worker processes can do a workload.
func isRegistered(w Workload) error {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	if registered.workloads == nil {
		return fmt.Errorf("%w: call chaos.Main in TestMain, or chaos.Reexec first in main: worker processes are this binary itself", ErrConfig)
	}
	_, err := find(registered.workloads, w.Name())
	return err
}
