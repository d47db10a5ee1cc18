package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// The verdicts of a run.
const (
	pass         = "pass"
	violated     = "violated"
	inconclusive = "inconclusive"
)

// judged is what is read of a run that "fencectl chaos run" has saved.
type judged struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
}

// judge runs a scenario of the chaos suite with its first seed under Fencekit,
// which is built with flags, and returns the run as it was judged.
func (r Runner) judge(ctx context.Context, scenario string, flags ...string) (*judged, error) {
	dir, err := os.MkdirTemp("", "mutant-chaos-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	chaos, out := filepath.Join(dir, "fencectl-chaos"), filepath.Join(dir, "out")
	build := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-buildvcs=false", "-o", chaos}, flags, []string{"./cmd/fencectl-chaos"})...)
	build.Dir = r.Root
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mutants: fencectl-chaos does not compile: %w:\n%s", err, said)
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	run := exec.CommandContext(ctx, chaos, "run", "--groups", "fenced", "--scenario", scenario, "--out", out)
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) } // it ends its servers
	said, runErr := run.CombinedOutput()
	judged, err := readRun(out)
	if err != nil {
		return nil, fmt.Errorf("mutants: scenario %s: %w:\n%s", scenario, errors.Join(err, runErr), said)
	}
	return judged, nil
}

// readRun reads the only run of a suite in a directory.
func readRun(dir string) (*judged, error) {
	saved, err := filepath.Glob(filepath.Join(dir, "*", "*", "*", "result.json"))
	if err == nil && len(saved) != 1 {
		err = fmt.Errorf("it did %d runs, want 1", len(saved))
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(saved[0])
	if err != nil {
		return nil, err
	}
	run := &judged{}
	err = json.Unmarshal(text, run)
	if err == nil && !slices.Contains([]string{pass, violated, inconclusive}, run.Verdict) {
		err = fmt.Errorf("its verdict is %q", run.Verdict)
	}
	return run, err
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
		if err == nil && run.Verdict != pass {
			err = fmt.Errorf("mutants: scenario %s does not pass without a mutant: %s: %s", m.Scenario, run.Verdict, run.Reason)
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}
