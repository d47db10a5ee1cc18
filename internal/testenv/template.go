package testenv

import (
	"context"
	"errors"
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

// templates are those that were made, for Main to drop.
var templates struct {
	mu    sync.Mutex
	names []string
}

// Database makes a copy and returns its DSN. What becomes of it is as with the
// function Database.
func (tpl *Template) Database(t testing.TB) (dsn string) {
	t.Helper()
	tpl.once.Do(func() { tpl.err = tpl.make(SharedPostgres(t)) })
	require.NoError(t, tpl.err)
	return database(t, tpl.name)
}

func (tpl *Template) make(p *Postgres) error {
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	defer cancel()
	tpl.name = databaseName("template")
	dsn, err := p.CreateDatabase(ctx, tpl.name)
	if err != nil {
		return err
	}
	templates.mu.Lock()
	templates.names = append(templates.names, tpl.name)
	templates.mu.Unlock()
	if err := tpl.Prepare(ctx, dsn); err != nil {
		return err
	}
	// What is still on its way out would be in the way of the copies.
	return p.endConnections(ctx, tpl.name)
}

// dropTemplates drops all templates: the shared server may outlive this process.
func dropTemplates(ctx context.Context) error {
	var failed []error
	for _, name := range templates.names {
		failed = append(failed, sharedPostgres.server.DropDatabase(ctx, name))
	}
	return errors.Join(failed...)
}
