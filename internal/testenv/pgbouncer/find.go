package pgbouncer

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// installed is PgBouncer where packages put it: Debian's place is not on an ordinary
// user's PATH.
var installed = process.Installed{
	Server: "PgBouncer",
	Places: []string{
		"pgbouncer",
		"/usr/sbin/pgbouncer",
		"/usr/local/sbin/pgbouncer",
		"/opt/homebrew/bin/pgbouncer",
	},
	Version: regexp.MustCompile(`(?i)^PgBouncer (?:version )?(\d\S*)`),
	Advice:  "sudo apt-get install pgbouncer | sudo dnf install pgbouncer | brew install pgbouncer",
}

// Find returns the path and the version, as "1.18.0", of the PgBouncer that Start runs. It
// fails with *process.NotFoundError if there is none.
func Find(ctx context.Context) (path, version string, err error) { return installed.Find(ctx) }
