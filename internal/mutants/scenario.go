package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/fencekit/fencekit/chaos/result"
)

// judge runs a scenario of the chaos suite with its first seed under the framework,
// which is built with flags, and returns the run as it was judged.
func (r Runner) judge(ctx context.Context, scenario string, flags ...string) (*result.Run, error) {
	dir, err := os.MkdirTemp("", "mutant-chaos-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	fencectl, out := filepath.Join(dir, "fencectl"), filepath.Join(dir, "out")
	build := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-buildvcs=false", "-o", fencectl}, flags, []string{"./cmd/fencectl"})...)
	build.Dir = r.Root
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mutants: fencectl does not compile: %w:\n%s", err, said)
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	run := exec.CommandContext(ctx, fencectl, "chaos", "run", "--groups", result.Fenced, "--scenario", scenario, "--out", out)
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) } // it ends its servers
	said, runErr := run.CombinedOutput()
	suite, err := result.LoadSuite(out)
	if err == nil && len(suite.Runs) != 1 {
		err = fmt.Errorf("it did %d runs, want 1", len(suite.Runs))
	}
	if err != nil {
		return nil, fmt.Errorf("mutants: scenario %s: %w:\n%s", scenario, errors.Join(err, runErr), said)
	}
	return &suite.Runs[0], nil
}

// passes returns an error for each of the scenarios of mutants that does not pass
// without one.
func (r Runner) passes(ctx context.Context, mutants []Mutant) (failed []error) {
	tried := map[string]bool{"": true}
	for _, m := range mutants {
		if tried[m.Scenario] {
			continue
		}
		tried[m.Scenario] = true
		run, err := r.judge(ctx, m.Scenario)
		if err == nil && run.Verdict != result.Pass {
			err = fmt.Errorf("mutants: scenario %s does not pass without a mutant: %s: %s", m.Scenario, run.Verdict, run.Reason)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}
