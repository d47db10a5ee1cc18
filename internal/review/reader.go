// Package review answers auditors' questions from the history, in plain words: why a grant was
// rejected, whether an operation took effect, and what happened in a period. It writes for readers
// who don't program. The SQL finds the facts; the sentences are in the templates.
//
// [Reader.Report] verifies the history with audit.Database.Verify; after a single finding the answer
// is that the record can't be relied on. [Reader.Why] reports what the tables say, without verifying
// them. If the answer may have been pruned, they say so instead of concluding that it never existed.
package review

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/record"
	"github.com/fencekit/fencekit/internal/schemadef"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Reader explains the history in one schema of a database. Its methods may be called
// concurrently.
type Reader struct {
	history *audit.Database
	pool    *pgxpool.Pool
	tables  *strings.Replacer
}

// NewReader returns a Reader of a schema. It fails as audit.Open does.
func NewReader(pool *pgxpool.Pool, schema string) (*Reader, error) {
	history, err := audit.Open(pool, schema)
	if err != nil {
		return nil, err
	}
	tables, err := schemadef.Tables(cmp.Or(schema, postgres.DefaultSchema))
	return &Reader{history, pool, tables}, err
}

//go:embed *.sql
var statements embed.FS

// statement returns a statement in which @name stands for a table or function of the schema: see schemadef.Tables.
func statement(name string) string {
	text, err := statements.ReadFile(name + ".sql")
	if err != nil {
		panic(err)
	}
	return string(text)
}

type readTx func(ctx context.Context, db record.Beginner, more string, fn func(pgx.Tx) error) error

// read reads the JSON that a statement returns, and leaves into as it is if that returns no row.
func (r *Reader) read(ctx context.Context, in readTx, into any, sql string, args ...any) error {
	err := in(ctx, r.pool, record.NoTimeouts, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, r.tables.Replace(sql), append([]any{pgx.QueryExecModeExec}, args...)...)
		if err != nil {
			return err
		}
		var text []byte
		_, err = pgx.ForEachRow(rows, []any{&text}, func() error { return json.Unmarshal(text, into) })
		return err
	})
	if err != nil {
		return fmt.Errorf("review: %w", err)
	}
	return nil
}
