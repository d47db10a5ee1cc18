package testenv

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/process"
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
type NoPgBouncerError struct{ Attempts []process.Attempt }

func (e *NoPgBouncerError) Error() string {
	return process.NoProgram("PgBouncer", e.Attempts, "sudo apt-get install pgbouncer | sudo dnf install pgbouncer | brew install pgbouncer")
}

var pgbouncerVersion = regexp.MustCompile(`(?i)^PgBouncer (?:version )?(\d\S*)`)

// FindPgBouncer returns the path and the version, as "1.18.0", of the PgBouncer
// that StartPgBouncer runs. It fails with *NoPgBouncerError if there is none.
func FindPgBouncer(ctx context.Context) (path, version string, err error) {
	return findPgBouncer(ctx, pgbouncerPlaces)
}

func findPgBouncer(ctx context.Context, places []string) (path, version string, err error) {
	path, version, attempts := process.FindProgram(ctx, places, pgbouncerVersion)
	if attempts != nil {
		return "", "", &NoPgBouncerError{attempts}
	}
	return path, version, nil
}
