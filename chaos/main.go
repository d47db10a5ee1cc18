package chaos

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
)

// registered are the workloads that worker processes of this binary can run; nil before Reexec.
var registered []Workload

// Reexec must be the first call of every main() whose binary runs chaos, with all the
// workloads that it runs beside the built-in one. In a child that was started as a worker,
// or as a server, it runs that and never returns.
func Reexec(workloads ...Workload) {
	registered = append([]Workload{worker.Stock{}}, workloads...)
	worker.Reexec(registered...)
}

// Main is a package's whole TestMain: it calls Reexec, runs the tests, and never returns. It
// fails if the tests leave a goroutine behind. A TestMain that does more calls Reexec itself.
func Main(m *testing.M, workloads ...Workload) {
	Reexec(workloads...)
	testenv.Main(m)
}

func isRegistered(w Workload) error {
	if registered == nil {
		return fmt.Errorf("%w: call chaos.Main in TestMain, or chaos.Reexec first in main: worker processes are this binary itself", ErrConfig)
	}
	byName := map[string]Workload{}
	for _, w := range registered {
		if other := byName[w.Name()]; other != nil {
			return fmt.Errorf("%w: %T and %T are both named %q: worker processes find a workload by its name", ErrConfig, other, w, w.Name())
		}
		byName[w.Name()] = w
	}
	if w == nil {
		return nil
	}
	switch known := byName[w.Name()]; {
	case known == nil:
		return fmt.Errorf("%w: this binary has no workload %q: give it to chaos.Main or chaos.Reexec", ErrConfig, w.Name())
	case reflect.TypeOf(known) != reflect.TypeOf(w):
		return fmt.Errorf("%w: workload %q is %T here, and was %T for chaos.Main or chaos.Reexec: give both the same", ErrConfig, w.Name(), w, known)
	case w.Name() == "":
		return fmt.Errorf("%w: the Name of %T is empty", ErrConfig, w)
	case len(w.Resources()) == 0:
		return fmt.Errorf("%w: workload %q has no Resources: name at least one", ErrConfig, w.Name())
	}
	for _, r := range w.Resources() {
		if err := fence.ValidateResource(r); err != nil {
			return fmt.Errorf("%w: Resources of workload %q: %w", ErrConfig, w.Name(), err)
		}
	}
	return nil
}
