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

// NotFoundError says where a server's program was looked for and what was wrong there, in
// order, and what to do.
type NotFoundError struct {
	// Server is what was looked for, as "Redis".
	Server   string
	Attempts []Attempt
	// Advice is the command that installs it, and what else may help.
	Advice string
}

func (e *NotFoundError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "testenv: found no %s to run:", e.Server)
	for _, a := range e.Attempts {
		fmt.Fprintf(&text, "\n  %s: %v", a.Where, a.Err)
	}
	return text.String() + "\ninstall one: " + e.Advice
}

// Unwrap gives the reason of each attempt.
func (e *NotFoundError) Unwrap() []error {
	errs := make([]error, len(e.Attempts))
	for i, a := range e.Attempts {
		errs[i] = a.Err
	}
	return errs
}

// Installed is a program that packages install.
type Installed struct {
	// Server is what it is, as "Redis".
	Server string
	// Places are where it may be: a name is looked for on the PATH.
	Places []string
	// Arguments make it print its version. Default: --version.
	Arguments []string
	// Version matches what it prints then; its first group is the version.
	Version *regexp.Regexp
	// Advice is the command that installs it.
	Advice string
}

// Find returns the path and the version of the first program that is there. It fails with
// *NotFoundError if there is none.
func (p *Installed) Find(ctx context.Context) (path, version string, err error) {
	var attempts []Attempt
	for _, place := range p.Places {
		path, version, err := p.inspect(ctx, place)
		if err == nil {
			return path, version, nil
		}
		attempts = append(attempts, Attempt{place, err})
	}
	return "", "", &NotFoundError{Server: p.Server, Attempts: attempts, Advice: p.Advice}
}

func (p *Installed) inspect(ctx context.Context, place string) (path, version string, err error) {
	if path, err = exec.LookPath(place); err != nil {
		return "", "", errors.Unwrap(err)
	}
	arguments := p.Arguments
	if arguments == nil {
		arguments = []string{"--version"}
	}
	out, err := exec.CommandContext(ctx, path, arguments...).Output()
	if err != nil {
		return "", "", err
	}
	match := p.Version.FindStringSubmatch(string(out))
	if match == nil {
		return "", "", fmt.Errorf("%s %s says %q", path, strings.Join(arguments, " "), strings.TrimSpace(string(out)))
	}
	return path, match[1], nil
}
