package chaos

import (
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
)

// registered are the workloads that worker processes of this binary can run, beside the
// built-in one.
var registered struct {
	mu        sync.Mutex
	called    bool
	workloads []Workload
}

// Reexec must be the first call of every main() whose binary runs chaos, with all the
// workloads that it runs beside the built-in one. In a child that was started as a worker,
// or as a server, it runs that and never returns.
func Reexec(workloads ...Workload) {
	worker.Reexec(workloads...)
	registered.mu.Lock()
	defer registered.mu.Unlock()
	registered.called, registered.workloads = true, workloads
}

// Main is a package's whole TestMain: it calls Reexec, runs the tests, and never returns. It
// fails if the tests leave a goroutine behind. A TestMain that does more calls Reexec itself.
func Main(m *testing.M, workloads ...Workload) {
	Reexec(workloads...)
	testenv.Main(m)
}

// isRegistered returns an error unless worker processes can run a workload; nil is the
// built-in one.
func isRegistered(w Workload) error {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	if !registered.called {
		return fmt.Errorf("%w: call chaos.Main in TestMain, or chaos.Reexec first in main: worker processes are this binary itself", ErrConfig)
	}
	if err := distinct(registered.workloads); err != nil {
		return err
	}
	if w == nil {
		return nil
	}
	for _, known := range registered.workloads {
		if known.Name() != w.Name() {
			continue
		}
		if reflect.TypeOf(known) != reflect.TypeOf(w) {
			return fmt.Errorf("%w: workload %q is %T here, and was %T for chaos.Main or chaos.Reexec: give both the same", ErrConfig, w.Name(), w, known)
		}
		return usable(w)
	}
	return fmt.Errorf("%w: this binary has no workload %q: give it to chaos.Main or chaos.Reexec", ErrConfig, w.Name())
}

// distinct returns an error if two workloads have one name, by which worker processes find them.
func distinct(workloads []Workload) error {
	byName := map[string]any{worker.Stock{}.Name(): worker.Stock{}}
	for _, w := range workloads {
		if other := byName[w.Name()]; other != nil {
			return fmt.Errorf("%w: %T and %T are both named %q: worker processes find a workload by its name", ErrConfig, other, w, w.Name())
		}
		byName[w.Name()] = w
	}
	return nil
}

// usable returns an error unless a workload has a name and valid resources.
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
