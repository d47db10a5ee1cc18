// Package audit reads and verifies the history that storage/postgres keeps: one entry for each move of each
// fence, in the transaction of the move, and the record of rejections.
//
// It only reads; the reader role (postgres.Roles.Reader) is enough, and the app role for all of the next
// section but Holds.
//
// # Reading
//
// [Database.Entries], [Database.Operations] and [Database.Rejections] return the rows that match a [Filter], in the
// order of resource and position. They hold one page in memory, and no transaction while the caller works. A loop
// may stop anywhere; a later one continues at the cursor of the last row. [Database.Holds] returns all holds.
//
//   - Filters are exact. One by time compares the time of each entry, since the server's clock
//     may have gone back.
//   - The pages are not of one snapshot: rows that are written or pruned meanwhile may be seen or
//     not. An entry never changes.
//   - Rows are returned as they are in the tables. Only a verification finds tampering.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/schemadef"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Database is the history in one schema of a database. Its methods may be called concurrently.
type Database struct {
	pool   *pgxpool.Pool
	schema string // quoted
	tables *strings.Replacer
	limits limits
}

// Open returns the history in a schema ("" means postgres.DefaultSchema). It doesn't connect. It fails with
// fence.ErrInvalid if pool is nil or schema is no valid name.
func Open(pool *pgxpool.Pool, schema string) (*Database, error) {
	if pool == nil {
		return nil, errors.Join(fence.ErrInvalid, errors.New("audit.Open without a pool"))
	}
	schema = cmp.Or(schema, postgres.DefaultSchema)
	tables, err := schemadef.Tables(schema)
	if err != nil {
		return nil, err
	}
	return &Database{pool: pool, schema: pgx.Identifier{schema}.Sanitize(), tables: tables, limits: usualLimits}, nil
}

// collect returns the rows of a query, in which @table stands for a table of the schema: see schemadef.Tables. It is planned for its
// arguments, and works behind a pooler.
func collect[T any](ctx context.Context, d *Database, sql string, args []any, scan pgx.RowToFunc[T]) ([]T, error) {
	var found []T
	err := record.ReadTx(ctx, d.pool, "", func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.tables.Replace(sql), append([]any{pgx.QueryExecModeExec}, args...)...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("audit: reading the history: %w", err)
	}
	return found, nil
}

// paged iterates over the pages that next returns, up to the first empty one. Each iteration begins with first.
func paged[T any](first func() (next func() ([]T, error), err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		next, err := first()
		if err != nil {
			yield(none, err)
			return
		}
		for {
			page, err := next()
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
		}
	}
}
