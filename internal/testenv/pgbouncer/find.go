package pgbouncer

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// places are where packages put PgBouncer: Debian's place is not on an
// ordinary user's PATH.
var places = []string{
	"pgbouncer",
	"/usr/sbin/pgbouncer",
	"/usr/local/sbin/pgbouncer",
	"/opt/homebrew/bin/pgbouncer",
}

// NotFoundError says where a PgBouncer was looked for and what was wrong
// there, in order, and what to do.
type NotFoundError struct{ Attempts []process.Attempt }

func (e *NotFoundError) Error() string {
	return process.NoProgram("PgBouncer", e.Attempts, "sudo apt-get install pgbouncer | sudo dnf install pgbouncer | brew install pgbouncer")
}

var versionText = regexp.MustCompile(`(?i)^PgBouncer (?:version )?(\d\S*)`)

// Find returns the path and the version, as "1.18.0", of the PgBouncer
// that Start runs. It fails with *NotFoundError if there is none.
func Find(ctx context.Context) (path, version string, err error) {
	return find(ctx, places)
}

func find(ctx context.Context, places []string) (path, version string, err error) {
	path, version, attempts := process.FindProgram(ctx, places, versionText)
	if attempts != nil {
		return "", "", &NotFoundError{attempts}
	}
	return path, version, nil
}
