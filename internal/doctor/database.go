package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/record"
)

// database is a database under examination, and what the checks have learned of it.
type database struct {
	Database
	limits   Limits
	answers  bool
	migrated bool    // the schema has all migrations that this package knows
	newer    bool    // and later ones, so that its definitions can't be compared
	version  int     // server_version_num
	shard    *string // which shard it is, "" if none; nil if that could not be read
}

func newDatabase(d Database, limits Limits) *database { return &database{Database: d, limits: limits} }

// fill puts the schema into a statement.
func (d *database) fill(sql string) string {
	return strings.ReplaceAll(sql, "{schema}", d.identifier())
}

func (d *database) identifier() string { return pgx.Identifier{d.Schema}.Sanitize() }

// found is a finding whose commands name the schema.
func (d *database) found(k Kind, seen string, words ...string) Finding {
	return k.found(d.Name, seen, append(words, "schema", d.identifier(), "schema-word", ShellWord(d.Schema))...)
}

// read calls do in a read-only transaction, within the limits. The names of tables that it reads
// have their schemas: an operator runs the printed commands with another search_path.
func (d *database) read(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	limits := fmt.Sprintf("set local lock_timeout = 1000; set local statement_timeout = %d", d.limits.Statement.Milliseconds())
	return record.ReadTx(ctx, d.Pool, limits, func(tx pgx.Tx) error { return do(ctx, tx) })
}

// row reads one row.
func (d *database) row(ctx context.Context, sql string, args []any, into ...any) error {
	return d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, d.fill(sql), args...).Scan(into...)
	})
}

// names reads a column of texts.
func (d *database) names(ctx context.Context, sql string, args ...any) (names []string, err error) {
	err = d.read(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, d.fill(sql), args...)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return names, err
}
