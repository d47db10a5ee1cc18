package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// timeout bounds the tests of one mutant.
const timeout = 5 * time.Minute

// migrates has to pass although a migration was changed: text that is not SQL any more is like Go that
// doesn't compile.
const migrates = "TestMigrate_AppliesEachOnce"

// Baseline returns an error unless the killers of mutants pass on the module in directory root as it is.
func Baseline(ctx context.Context, root string, mutants []Mutant) error {
	killers := map[string][]string{}
	for _, m := range mutants {
		if !slices.Contains(killers[m.Package], m.Killer) {
			killers[m.Package] = append(killers[m.Package], m.Killer)
		}
	}
	var failed []error
	for pkg, names := range killers {
		verdicts, output, err := goTest(ctx, root, pkg, names)
		for _, name := range names {
			if err == nil && verdicts[name] != "pass" {
				err = fmt.Errorf("mutants: %s of %s does not pass without a mutant:\n%s", name, pkg, output)
			}
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Run returns whether the killer of m fails on the module in directory root as m changes it. Its error
// says that this shows nothing: the module doesn't compile, or the killer neither passed nor failed.
func (m Mutant) Run(ctx context.Context, root string) (killed bool, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	list, sql, err := m.Overlay(root, dir)
	if err != nil {
		return false, err
	}
	names := []string{m.Killer}
	if sql {
		names = append(names, migrates)
	}
	verdicts, output, err := goTest(ctx, root, m.Package, names, "-overlay", list)
	verdict := verdicts[m.Killer]
	if verdict == "" && verdicts[""] == "fail" && strings.Contains(output, "\npanic: ") {
		verdict = "fail" // the killer, which ran alone, ended its process
	}
	switch {
	case err != nil:
		return false, err
	case sql && verdicts[migrates] != "pass":
		return false, fmt.Errorf("mutants: %s does not migrate:\n%s", m.Name, output)
	case verdict != "pass" && verdict != "fail":
		return false, fmt.Errorf("mutants: %s: %s neither passed nor failed:\n%s", m.Name, m.Killer, output)
	default:
		return verdict == "fail", nil
	}
}

// goTest runs tests of a package, and returns what became of each, and what they printed.
func goTest(ctx context.Context, root, pkg string, names []string, flags ...string) (verdicts map[string]string, output string, err error) {
	var patterns []string
	for _, name := range names {
		parts := strings.Split(name, "/")
		for i, part := range parts {
			parts[i] = "^" + regexp.QuoteMeta(part) + "$"
		}
		patterns = append(patterns, strings.Join(parts, "/"))
	}
	args := slices.Concat([]string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout", (timeout * time.Duration(len(names))).String(),
		"-run", strings.Join(patterns, "|")}, flags, []string{"./" + pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if failed := new(exec.ExitError); err != nil && (ctx.Err() != nil || !errors.As(err, &failed)) {
		return nil, "", fmt.Errorf("mutants: running the tests of %s: %w", pkg, err)
	}
	verdicts = map[string]string{}
	var text strings.Builder
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(line, &event) != nil {
			text.Write(line) // the compiler's
			continue
		}
		text.WriteString(event.Output)
		switch event.Action {
		case "build-fail":
			err = errors.Join(err, fmt.Errorf("mutants: %s does not compile", pkg))
		case "pass", "fail", "skip":
			verdicts[event.Test] = event.Action
		}
	}
	switch output = text.String(); {
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return nil, "", fmt.Errorf("mutants: %s does not compile:\n%s", pkg, output)
	case strings.Contains(output, "panic: test timed out after"):
		return nil, "", fmt.Errorf("mutants: the tests of %s ran out of time:\n%s", pkg, output)
	}
	return verdicts, output, nil
}
