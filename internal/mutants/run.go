package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Runner runs tests of the module in directory Root.
type Runner struct {
	Root    string
	Timeout time.Duration // of one killer; several have as many times that
}

// migrates is the test that has to pass in the killer's package although a migration
// was changed: text that is not SQL any more is like Go that doesn't compile.
const migrates = "TestMigrate_AppliesEachOnce"

// Result is what became of a mutant.
type Result struct {
	Mutant   Mutant
	Killed   bool
	Violated bool   // its Scenario was
	Reason   string // what the run of its Scenario was found to be, "" if it has none
	Took     time.Duration
	Err      error // nothing was shown
}

// AsExpected reports whether a mutant that is to be killed was, and its scenario
// violated, or one that is said to survive did.
func (r Result) AsExpected() bool {
	return r.Err == nil && r.Killed == (r.Mutant.Survives == "") && r.Violated == (r.Mutant.Scenario != "")
}

// Baseline runs the killers and scenarios of mutants on the module as it is. It
// returns an error unless all of them pass.
func (r Runner) Baseline(ctx context.Context, mutants []Mutant) error {
	tests := map[string][]Test{}
	for _, m := range mutants {
		if p := m.Killer.Package; !slices.Contains(tests[p], m.Killer) {
			tests[p] = append(tests[p], m.Killer)
		}
	}
	var failed []error
	for pkg, killers := range tests {
		var patterns []string
		for _, killer := range killers {
			patterns = append(patterns, pattern(killer.Name))
		}
		ran, err := r.goTest(ctx, time.Duration(len(killers))*r.Timeout, pkg, strings.Join(patterns, "|"))
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, killer := range killers {
			if ran.verdicts[killer.Name] != "pass" {
				failed = append(failed, fmt.Errorf("mutants: %s does not pass without a mutant:\n%s", killer, ran.output))
			}
		}
	}
	return errors.Join(append(failed, r.passes(ctx, mutants)...)...)
}

// Run runs the killer of m, and its scenario, on the module as m changes it.
func (r Runner) Run(ctx context.Context, m Mutant) Result {
	start := time.Now()
	of := Result{Mutant: m}
	of.Err = r.run(ctx, &of)
	of.Took = time.Since(start)
	return of
}

func (r Runner) run(ctx context.Context, of *Result) error {
	m := of.Mutant
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	list, err := m.Overlay(r.Root, dir)
	if err != nil {
		return err
	}
	if of.Killed, err = r.isKilled(ctx, m, list); err != nil || m.Scenario == "" {
		return err
	}
	run, err := r.judge(ctx, m.Scenario, "-overlay", list)
	if err != nil {
		return err
	}
	of.Violated, of.Reason = run.Verdict == violated, run.Verdict+": "+run.Reason
	return nil
}

func (r Runner) isKilled(ctx context.Context, m Mutant, list string) (killed bool, err error) {
	tests := pattern(m.Killer.Name)
	if m.changesSQL() {
		tests += "|" + pattern(migrates)
	}
	ran, err := r.goTest(ctx, r.Timeout, m.Killer.Package, tests, "-overlay", list)
	if err != nil {
		return false, err
	}
	if m.changesSQL() && ran.verdicts[migrates] != "pass" {
		return false, fmt.Errorf("mutants: %s does not migrate:\n%s", m.Killer.Package, ran.output)
	}
	switch ran.verdicts[m.Killer.Name] {
	case "pass":
		return false, nil
	case "fail":
		return true, nil
	}
	return false, fmt.Errorf("mutants: %s neither passed nor failed:\n%s", m.Killer, ran.output)
}

// pattern is what selects one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// goTest runs the tests of a package that a pattern selects. Its error says that
// what they did shows nothing.
func (r Runner) goTest(ctx context.Context, timeout time.Duration, pkg, pattern string, flags ...string) (*testRun, error) {
	args := slices.Concat([]string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout", timeout.String(), "-run", pattern}, flags, []string{"./" + pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.Root
	out, err := cmd.CombinedOutput()
	if failed := new(exec.ExitError); err != nil && (ctx.Err() != nil || !errors.As(err, &failed)) {
		return nil, fmt.Errorf("mutants: running the tests of %s: %w", pkg, err)
	}
	ran := readEvents(out)
	switch {
	case ran.buildFailed:
		return nil, fmt.Errorf("mutants: %s does not compile:\n%s", pkg, ran.output)
	case ran.timedOut:
		return nil, fmt.Errorf("mutants: the tests of %s ran out of time, which shows nothing:\n%s", pkg, ran.output)
	}
	return ran, nil
}
