package process

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// Attempt is one place where a program was looked for in vain.
type Attempt struct {
	Where string
	Err   error
}

// FindProgram returns the first program of places whose --version matches, and
// what the first group of the match is; without one, what was wrong where.
func FindProgram(ctx context.Context, places []string, version *regexp.Regexp) (path, number string, attempts []Attempt) {
	for _, place := range places {
		path, number, err := inspectProgram(ctx, place, version)
		if err == nil {
			return path, number, nil
		}
		attempts = append(attempts, Attempt{place, err})
	}
	return "", "", attempts
}

func inspectProgram(ctx context.Context, place string, version *regexp.Regexp) (path, number string, err error) {
	if path, err = exec.LookPath(place); err != nil {
		return "", "", errors.Unwrap(err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", err
	}
	match := version.FindStringSubmatch(string(out))
	if match == nil {
		return "", "", fmt.Errorf("%s --version says %q", path, strings.TrimSpace(string(out)))
	}
	return path, match[1], nil
}

// NoProgram is the text of an error that says what was tried, and what to install.
func NoProgram(name string, attempts []Attempt, install string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "testenv: found no %s to run:", name)
	for _, a := range attempts {
		fmt.Fprintf(&text, "\n  %s: %v", a.Where, a.Err)
	}
	return text.String() + "\ninstall it: " + install
}
