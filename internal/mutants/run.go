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
	Mutant Mutant
	Killed bool
	Took   time.Duration
	Err    error // nothing was shown
}

// AsExpected reports whether a mutant that is to be killed was, or one that is said
// to survive did.
func (r Result) AsExpected() bool { return r.Err == nil && r.Killed == (r.Mutant.Survives == "") }

// Baseline runs the killers of mutants on the module as it is. It returns an error
// unless all of them pass.
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
	return errors.Join(failed...)
}

// Run runs the killer of m on the module as m changes it.
func (r Runner) Run(ctx context.Context, m Mutant) Result {
	start := time.Now()
	killed, err := r.isKilled(ctx, m)
	return Result{Mutant: m, Killed: killed, Took: time.Since(start), Err: err}
}

func (r Runner) isKilled(ctx context.Context, m Mutant) (killed bool, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	list, err := m.Overlay(r.Root, dir)
	if err != nil {
		return false, err
	}
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
	args := slices.Concat([]string{"test", "-json", "-count=1", "-vet=off", "-timeout", timeout.String(), "-run", pattern}, flags, []string{"./" + pkg})
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
