// Package python finds a Python that has psycopg, for the tests of the client in
// examples/python.
package python

import (
	"context"
	"regexp"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// installed is a Python that can import psycopg. The first one on the PATH often can't, where
// /usr/bin/python3, for which Debian packages psycopg, can.
var installed = process.Installed{
	Server: "Python with psycopg",
	Places: []string{
		"python3",
		"/usr/bin/python3",
		"/usr/local/bin/python3",
		"/opt/homebrew/bin/python3",
	},
	Arguments: []string{"-c", "import psycopg; print('psycopg', psycopg.__version__)"},
	Version:   regexp.MustCompile(`^psycopg (3\.[1-9]\S*)`),
	Advice:    "sudo apt-get install python3-psycopg | sudo dnf install python3-psycopg3 | pip install 'psycopg[binary]'",
}

// Find returns the path of a Python and the version, as "3.1.7", of its psycopg. It fails with
// *process.NotFoundError if there is none.
func Find(ctx context.Context) (path, version string, err error) { return installed.Find(ctx) }
