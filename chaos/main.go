package chaos

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"

	"github.com/fencekit/fencekit/fence"
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

// Main is a package's whole TestMain: it calls Reexec, and runs the tests. It fails
// if a goroutine outlives them, and never returns. A TestMain that does something else
// calls Reexec itself.
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
	if err := distinct(registered.workloads); err != nil {
		return err
	}
	known, err := find(registered.workloads, w.Name())
	if err != nil {
		return err
	}
	if reflect.TypeOf(known) != reflect.TypeOf(w) {
		return fmt.Errorf("%w: workload %q is %T here, and was %T for chaos.Main or chaos.Reexec: give both the same", ErrConfig, w.Name(), w, known)
	}
	return usable(w)
}

// distinct reports whether workloads can be told from one another in a worker process.
func distinct(workloads []Workload) error {
	byName := map[string]Workload{}
	for _, w := range workloads {
		if other := byName[w.Name()]; other != nil {
			return fmt.Errorf("%w: %T and %T are both named %q: worker processes go by the name", ErrConfig, other, w, w.Name())
		}
		byName[w.Name()] = w
	}
	return nil
}

// usable reports whether there is something to work on.
func usable(w Workload) error {
	if w.Name() == "" {
		return fmt.Errorf("%w: the Name of %T is empty", ErrConfig, w)
	}
	if len(w.Resources()) == 0 {
		return fmt.Errorf("%w: workload %q has no Resources: name at least one", ErrConfig, w.Name())
	}
	for _, r := range w.Resources() {
		if err := fence.ValidateResource(r); err != nil {
			return fmt.Errorf("%w: Resources of workload %q: %w", ErrConfig, w.Name(), err)
		}
	}
	return nil
}
