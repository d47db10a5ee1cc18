package pgserver

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Template is a database on the shared Postgres that is prepared once, and copied for
// each test: a copy costs a fraction of a migration.
type Template struct {
	// Prepare fills an empty database, and closes its connections.
	Prepare func(ctx context.Context, dsn string) error

	once sync.Once
	name string
	err  error
}

// Database makes a copy and returns its DSN. What becomes of it is as with the
// function Database.
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
	if err := tpl.Prepare(ctx, dsn); err != nil {
		return err
	}
	// What is still on its way out would be in the way of the copies.
	return p.endConnections(ctx, tpl.name)
}
