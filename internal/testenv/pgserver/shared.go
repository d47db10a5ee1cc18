package pgserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

var shared = process.NewShared(func(ctx context.Context) (*Server, error) {
	return Start(ctx, &Config{Settings: unsynced})
})

// unsynced are the settings of a server that no test crashes: otherwise making and
// dropping databases mostly waits for the disk. No database lives long enough to need
// a vacuum, whose locks would be in the way of tests that look at locks, and no query runs long enough to be
// worth compiling, for which the planner takes those of a few views.
var unsynced = map[string]string{"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "jit": "off"}

// Shared returns the Postgres that the tests of this binary share. A
// test that kills, pauses or restarts it disturbs the others: Start is
// for that. The test fails if none is found, with what to install.
func Shared(t testing.TB) *Server {
	t.Helper()
	p, err := shared.Get()
	require.NoError(t, err)
	return p
}

// Database makes a fresh database on the shared Postgres and returns its DSN.
// It is dropped when the test passes; when the test fails it is kept, while
// the server lives, and named in the log.
func Database(t testing.TB) (dsn string) {
	t.Helper()
	return database(t, "")
}

// database makes a copy of a template, or an empty database.
func database(t testing.TB, template string) (dsn string) {
	t.Helper()
	p := Shared(t)
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	name := databaseName(t.Name())
	dsn, err := p.createDatabase(ctx, name, template)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("testenv: database kept: %s", dsn)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
		defer cancel()
		require.NoError(t, p.DropDatabase(ctx, name))
	})
	return dsn
}

// databaseName is a test's name as an identifier, cut to what Postgres takes,
// with a random end: a server that went on after earlier tests may keep theirs.
func databaseName(test string) string {
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("%.46s_%016x", word, rand.Uint64())
}
