package chaos

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

// Test does the runs that cfg asks for as subtests: one for each run under Fencekit,
// which fails unless the run passes, and one for each control that cfg names, which fails
// unless the same faults break it. By default Groups is Fencekit alone: controls can
// only run a Workload that works through Env.Do and Hold. The files of the runs go to
// cfg.Dir, which the test's log names. By default that is a temporary directory, which is
// kept if a test fails.
func Test(t *testing.T, cfg Config) {
	t.Helper()
	if cfg.Groups == nil {
		cfg.Groups = []string{Fenced}
	}
	own := cfg.Dir == ""
	if own {
		cfg.Dir = ownDir(t)
	}
	if cfg.Progress == nil {
		cfg.Progress = func(p Progress) {
			if !p.Ended {
				t.Logf("run %d: %s", p.Done+1, p.Run)
			}
		}
	}
	suite, err := run(t.Context(), cfg)
	if suite != nil {
		t.Cleanup(func() {
			if !own || t.Failed() {
				t.Logf("the files of the runs are in %s", cfg.Dir)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range suite.Runs {
		if r := &suite.Runs[i]; r.Group == Fenced {
			t.Run(r.String(), func(t *testing.T) { judged(t, r) })
		}
	}
	for _, c := range suite.Controls() {
		t.Run(c.Name, func(t *testing.T) {
			if doubt := c.Doubt(); doubt != "" {
				t.Error(doubt)
			}
		})
	}
}

func judged(t *testing.T, r *check.Run) {
	t.Logf("%s: %s; %+v", r.Verdict, r.Reason, r.Counts)
	for _, text := range complaints(r) {
		t.Error(text)
	}
}

func complaints(r *check.Run) (all []string) {
	for _, f := range r.Findings {
		if f.Status == check.Held || f.Status == check.Irrelevant {
			continue
		}
		lines := append([]string{fmt.Sprintf("%s (%s): %s: %s", f.Property, f.Title, f.Status, f.Detail)}, f.Examples...)
		all = append(all, strings.ReplaceAll(strings.Join(lines, "\n"), "\n", "\n    "))
	}
	return all
}

func ownDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "fencekit-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// registered are the workloads that worker processes of this binary can run; nil before Reexec.
var registered []worker.Workload

// Reexec must be the first call of every main() whose binary runs chaos, with all the
// workloads that it runs beside the built-in one. In a child that was started as a worker
// it runs that and never returns.
func Reexec(workloads ...Workload) {
	registered = withStock(workloads)
	worker.Reexec(registered...)
}

func withStock(workloads []Workload) []worker.Workload {
	all := []worker.Workload{worker.Stock{}}
	for _, w := range workloads {
		all = append(all, adapter{w})
	}
	return all
}

// typeOf is the type of a user's workload, or of the built-in one.
func typeOf(w worker.Workload) reflect.Type {
	if a, ok := w.(adapter); ok {
		return reflect.TypeOf(a.Workload)
	}
	return reflect.TypeOf(w)
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
	byName := map[string]worker.Workload{}
	for _, w := range registered {
		if other := byName[w.Name()]; other != nil {
			return fmt.Errorf("%w: %v and %v are both named %q: worker processes find a workload by its name", ErrConfig, typeOf(other), typeOf(w), w.Name())
		}
		byName[w.Name()] = w
	}
	if w == nil {
		return nil
	}
	switch known := byName[w.Name()]; {
	case known == nil:
		return fmt.Errorf("%w: this binary has no workload %q: give it to chaos.Main or chaos.Reexec", ErrConfig, w.Name())
	case typeOf(known) != reflect.TypeOf(w):
		return fmt.Errorf("%w: workload %q is %T here, and was %v for chaos.Main or chaos.Reexec: give both the same", ErrConfig, w.Name(), w, typeOf(known))
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
