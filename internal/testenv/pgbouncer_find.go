package testenv

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
)

// pgbouncerPlaces are where packages put PgBouncer: Debian's place is not on an
// ordinary user's PATH.
var pgbouncerPlaces = []string{
	"pgbouncer",
	"/usr/sbin/pgbouncer",
	"/usr/local/sbin/pgbouncer",
	"/opt/homebrew/bin/pgbouncer",
}

// NoPgBouncerError says where a PgBouncer was looked for and what was wrong
// there, in order, and what to do.
type NoPgBouncerError struct{ Attempts []Attempt }

func (e *NoPgBouncerError) Error() string {
	var text strings.Builder
	text.WriteString("testenv: found no PgBouncer to run:")
	for _, a := range e.Attempts {
		fmt.Fprintf(&text, "\n  %s: %v", a.Where, a.Err)
	}
	text.WriteString("\ninstall it: sudo apt-get install pgbouncer | sudo dnf install pgbouncer | brew install pgbouncer")
	return text.String()
}

var pgbouncerVersion = regexp.MustCompile(`(?i)^PgBouncer (?:version )?(\d\S*)`)

// FindPgBouncer returns the path and the version, as "1.18.0", of the PgBouncer
// that StartPgBouncer runs. It fails with *NoPgBouncerError if there is none.
func FindPgBouncer(ctx context.Context) (path, version string, err error) {
	return findPgBouncer(ctx, pgbouncerPlaces)
}

func findPgBouncer(ctx context.Context, places []string) (path, version string, err error) {
	var none NoPgBouncerError
	for _, place := range places {
		path, version, err := inspectPgBouncer(ctx, place)
		if err == nil {
			return path, version, nil
		}
		none.Attempts = append(none.Attempts, Attempt{place, err})
	}
	return "", "", &none
}

func inspectPgBouncer(ctx context.Context, place string) (path, version string, err error) {
	if path, err = exec.LookPath(place); err != nil {
		return "", "", errors.Unwrap(err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", err
	}
	match := pgbouncerVersion.FindStringSubmatch(string(out))
	if match == nil {
		return "", "", fmt.Errorf("%s --version says %q", path, strings.TrimSpace(string(out)))
	}
	return path, match[1], nil
}
