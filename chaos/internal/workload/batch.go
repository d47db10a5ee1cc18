package workload

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Batch returns the statements of an operation that makes no decision between them. token
// is an expression in SQL for the token of its resource, in a statement whose row s has that
// as its column resource.
type Batch func(token string) Statements

// Statements are statements of a transaction. Each has to affect one row.
type Statements []Statement

// Statement is one statement.
type Statement struct {
	SQL  string
	Args []any
}

// Run runs the statements.
func (all Statements) Run(ctx context.Context, tx pgx.Tx) error {
	for _, s := range all {
		tag, err := tx.Exec(ctx, s.SQL, s.Args...)
		if err == nil && tag.RowsAffected() != 1 {
			err = fmt.Errorf("a statement affected %d rows, not one", tag.RowsAffected())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
