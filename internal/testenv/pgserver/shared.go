package pgserver

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

var shared = process.NewShared(func(ctx context.Context) (*Server, error) {
	return Start(ctx, &Config{Settings: unsynced})
})

// unsynced are the settings of a server that no test crashes: otherwise making and dropping databases mostly
// waits for the disk. The locks of a vacuum would be in the way of tests that look at locks, and the planner
// takes the queries of a few views for worth compiling.
var unsynced = map[string]string{"fsync": "off", "full_page_writes": "off", "autovacuum": "off", "jit": "off"}

// Shared returns the Postgres that the tests of this binary share. Start is for a test that kills, pauses or
// restarts one.
func Shared(t testing.TB) *Server {
	t.Helper()
	p, err := shared.Get()
	require.NoError(t, err)
	return p
}

// Database makes a fresh database on the shared Postgres and returns its DSN. It is dropped when the test
// passes; when the test fails it is kept, while the server lives, and named in the log.
func Database(t testing.TB) (dsn string) {
	t.Helper()
	return database(t, "")
}

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

// databaseName is a test's name as an identifier, with a random end: a server that went on after earlier
// tests may keep theirs.
func databaseName(test string) string {
	word := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(test))
	return fmt.Sprintf("%.46s_%016x", word, rand.Uint64())
}

// Template is a database on the shared Postgres that is prepared once, and copied for
// each test: a copy costs a fraction of a migration.
type Template struct {
	// Prepare fills an empty database.
	Prepare func(ctx context.Context, pool *pgxpool.Pool) error

	once sync.Once
	name string
	err  error
}

// Database makes a copy and returns its DSN; see the function Database.
func (tpl *Template) Database(t testing.TB) (dsn string) {
	t.Helper()
	tpl.once.Do(func() { tpl.err = tpl.make(Shared(t)) })
	require.NoError(t, tpl.err)
	return database(t, tpl.name)
}

func (tpl *Template) make(p *Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	tpl.name = databaseName("template")
	dsn, err := p.CreateDatabase(ctx, tpl.name)
	if err != nil {
		return err
	}
	// The shared server may outlive this process.
	process.AfterTests(func(ctx context.Context) error { return p.DropDatabase(ctx, tpl.name) })
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	err = tpl.Prepare(ctx, pool)
	pool.Close()
	if err != nil {
		return err
	}
	// What is still on its way out would be in the way of the copies.
	return p.endConnections(ctx, tpl.name)
}
