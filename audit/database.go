package audit

import (
	"cmp"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Database is the history in one schema of a database. Its methods may be called
// concurrently.
type Database struct {
	pool   *pgxpool.Pool
	schema string // quoted
}

// Open returns the history in a schema ("" means postgres.DefaultSchema). It doesn't connect. It fails with
// fence.ErrInvalid if schema can't be a schema's name.
func Open(pool *pgxpool.Pool, schema string) (*Database, error) {
	if pool == nil {
		return nil, errors.Join(fence.ErrInvalid, errors.New("audit.Open without a pool"))
	}
	schema = cmp.Or(schema, postgres.DefaultSchema)
	if _, err := postgres.Migrations(schema); err != nil {
		return nil, err
	}
	return &Database{pool: pool, schema: pgx.Identifier{schema}.Sanitize()}, nil
}
