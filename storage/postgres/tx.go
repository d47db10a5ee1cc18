package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrManagedTx is returned by Commit and Rollback of the transaction that an
// operation is given: it commits when the operation returns nil, after its seal,
// and rolls back when it returns an error.
var ErrManagedTx = errors.New("postgres: the guard commits or rolls back this transaction, not the operation")

// tx is the pgx.Tx that an operation works with. It can't end the transaction,
// and notices when SQL text did.
type tx struct {
	*session
	over error // why it can't be used although the session can
}

var _ pgx.Tx = (*tx)(nil)

// enter is session.enter for what may be over by itself.
func (t *tx) enter() error {
	if t.over != nil {
		return t.over
	}
	return t.session.enter()
}

// Commit is refused with ErrManagedTx.
func (t *tx) Commit(context.Context) error { return ErrManagedTx }

// Rollback is refused with ErrManagedTx.
func (t *tx) Rollback(context.Context) error { return ErrManagedTx }

// Conn returns nil: the connection's own methods would bypass the guard.
func (t *tx) Conn() *pgx.Conn { return nil }

// Begin begins a pseudo nested transaction: a savepoint.
func (t *tx) Begin(ctx context.Context) (pgx.Tx, error) { return beginSavepoint(ctx, t) }

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.enter(); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer t.leave()
	tag, err := t.conn.Exec(ctx, sql, args...)
	return tag, t.note(err, tag)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	r, err := t.conn.Query(ctx, sql, args...)
	result := &rows{Rows: r, session: t.session, leave: t.leave}
	if err != nil {
		result.Close()
	}
	return result, err
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return &row{Row: t.conn.QueryRow(ctx, sql, args...), session: t.session, leave: t.leave}
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.enter(); err != nil {
		return 0, err
	}
	defer t.leave()
	return t.conn.CopyFrom(ctx, table, columns, src)
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if pgx.FailedBatchResults(b, nil).Tx() != nil {
		return pgx.FailedBatchResults(b, fmt.Errorf("%w: Batch.BeginTx is not for use inside it", ErrManagedTx))
	}
	if err := t.enter(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &batchResults{BatchResults: t.conn.SendBatch(ctx, t.wrapped(b)), session: t.session, leave: t.leave}
}

// wrapped is a copy of b whose callbacks are given results that hide the
// connection.
func (t *tx) wrapped(b *pgx.Batch) *pgx.Batch {
	wrapped := *b
	wrapped.QueuedQueries = make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		query := *q
		if f := q.Fn; f != nil {
			query.Fn = func(results pgx.BatchResults) error {
				return f(&batchResults{BatchResults: results, session: t.session, leave: func() {}})
			}
		}
		wrapped.QueuedQueries[i] = &query
	}
	return &wrapped
}

func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.enter(); err != nil {
		return nil, err
	}
	defer t.leave()
	return t.conn.Prepare(ctx, name, sql)
}

// LargeObjects returns pgx's access to large objects in this transaction. pgx
// gives it to transactions of its own only, so one is made around what is open:
// its BEGIN and its COMMIT are empty statements.
func (t *tx) LargeObjects() pgx.LargeObjects {
	if t.enter() != nil {
		return closedTx.LargeObjects()
	}
	defer t.leave()
	if t.large == nil {
		inner, err := t.conn.BeginTx(context.Background(), pgx.TxOptions{BeginQuery: "select", CommitQuery: "select"})
		if err != nil {
			return closedTx.LargeObjects()
		}
		t.large = inner
	}
	return t.large.LargeObjects()
}

// closedTx is a transaction of which every method fails with pgx.ErrTxClosed.
var closedTx = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()
