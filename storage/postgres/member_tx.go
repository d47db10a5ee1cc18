package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// memberTx is the pgx.Tx of a member. The end of a caller's context must not interrupt a
// statement: pgx closes the connection then, which would end the transaction for all
// members. So statements run until whole ends, and none begins under a context that has ended.
type memberTx struct {
	pgx.Tx
	whole context.Context
}

// memberContext ends with its Context, and has the values of another one.
type memberContext struct {
	context.Context // has no values of its own
	values          context.Context
}

// Value returns what belongs to the end of c, and else the caller's value.
func (c memberContext) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.values.Value(key)
}

// during returns the context for a statement.
func (t *memberTx) during(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return ctx // pgx sends nothing then
	}
	return memberContext{t.whole, ctx}
}

func (t *memberTx) Begin(ctx context.Context) (pgx.Tx, error) {
	inner, err := t.Tx.Begin(t.during(ctx))
	if err != nil {
		return nil, err
	}
	return &memberTx{inner, t.whole}, nil
}

func (t *memberTx) Commit(ctx context.Context) error   { return t.Tx.Commit(t.during(ctx)) }
func (t *memberTx) Rollback(ctx context.Context) error { return t.Tx.Rollback(t.during(ctx)) }

func (t *memberTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.Tx.Exec(t.during(ctx), sql, args...)
}

func (t *memberTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.Tx.Query(t.during(ctx), sql, args...)
}

func (t *memberTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.Tx.QueryRow(t.during(ctx), sql, args...)
}

func (t *memberTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	return t.Tx.CopyFrom(t.during(ctx), table, columns, src)
}

func (t *memberTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.Tx.SendBatch(t.during(ctx), b)
}

func (t *memberTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.Tx.Prepare(t.during(ctx), name, sql)
}
