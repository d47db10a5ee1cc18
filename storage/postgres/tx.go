package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/guard"
)

// ErrManagedTx is returned by Commit and Rollback of the transaction that an
// operation is given: it commits when the operation returns nil, after its seal,
// and rolls back when it returns an error.
var ErrManagedTx = errors.New("postgres: the guard commits or rolls back this transaction, not the operation")

// session is what the transaction and the savepoints in it share.
type session struct {
	conn   *pgx.Conn
	large  pgx.Tx // of LargeObjects, if they are used
	closed bool   // the operation has returned
	ended  bool   // SQL text ended the transaction
	stuck  error  // a savepoint was to be rolled back, and could not be
}

// tx is the pgx.Tx that an operation works with. It can't end the transaction,
// and notices when SQL text did.
type tx struct {
	*session
	over error // why it can't be used although the session can
}

var _ pgx.Tx = (*tx)(nil)

// close makes the transaction, and what was made of it, unusable.
func (s *session) close(ctx context.Context) {
	s.closed = true
	if s.large != nil {
		_ = s.large.Commit(ctx)
	}
}

// usable returns why no statement may be sent, if so.
func (t *tx) usable() error {
	switch {
	case t.closed:
		return fmt.Errorf("%w: it was used after the operation had returned", guard.ErrTxEnded)
	case t.ended:
		return errEndedBySQL
	case t.over == nil && t.conn.PgConn().IsBusy():
		return errOpenResult
	}
	return t.over
}

var (
	errEndedBySQL = fmt.Errorf("%w by SQL in the operation; what its COMMIT wrote stays, without a fence", guard.ErrTxEnded)
	errOpenResult = errors.New("postgres: the operation left a result open: close its Rows, scan its Row or close its BatchResults")
)

// note looks at what a statement has left behind, adding to its error. Tags are
// not enough, since a message can hold several statements and only the last has
// one; the seal finds what is not noticed here.
func (t *tx) note(err error, tag pgconn.CommandTag) error {
	switch tag.String() {
	case "COMMIT", "PREPARE TRANSACTION":
		t.ended = true
	}
	if pg := t.conn.PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() == 'I' {
		t.ended = true
	}
	switch unusable := t.usable(); {
	case unusable == nil, unusable == errOpenResult, errors.Is(err, unusable):
		return err
	case err == nil:
		return unusable
	default:
		return errors.Join(err, unusable)
	}
}

// verdict returns why the transaction can't commit after the operation has
// returned err, if so: err itself if that is not nil.
func (t *tx) verdict(err error) error {
	if err = t.note(err, pgconn.CommandTag{}); err != nil {
		return err
	}
	pg := t.conn.PgConn()
	switch {
	case pg.IsClosed():
		return errors.New("postgres: the connection was lost during the operation")
	case pg.IsBusy():
		return errOpenResult
	case pg.TxStatus() == 'E':
		return fmt.Errorf("postgres: a statement failed and the operation did not return its error: %w", pgx.ErrTxCommitRollback)
	}
	return t.stuck
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
	if err := t.usable(); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.conn.Exec(ctx, sql, args...)
	return tag, t.note(err, tag)
}

func (t *tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.usable(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).Query()
	}
	r, err := t.conn.Query(ctx, sql, args...)
	return &rows{Rows: r, tx: t}, err
}

func (t *tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.usable(); err != nil {
		return pgx.FailedBatchResults(&pgx.Batch{}, err).QueryRow()
	}
	return &row{Row: t.conn.QueryRow(ctx, sql, args...), tx: t}
}

func (t *tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, src)
}

func (t *tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	err := t.usable()
	if err == nil && pgx.FailedBatchResults(b, nil).Tx() != nil {
		err = fmt.Errorf("%w: Batch.BeginTx is not for use inside it", ErrManagedTx)
	}
	if err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	for _, q := range b.QueuedQueries {
		if f := q.Fn; f != nil {
			q.Fn = func(results pgx.BatchResults) error { return f(&batchResults{results, t}) }
		}
	}
	return &batchResults{t.conn.SendBatch(ctx, b), t}
}

func (t *tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.usable(); err != nil {
		return nil, err
	}
	return t.conn.Prepare(ctx, name, sql)
}

// LargeObjects returns pgx's access to large objects in this transaction. pgx
// gives it to transactions of its own only, so one is made around what is open:
// its BEGIN and its COMMIT are empty statements.
func (t *tx) LargeObjects() pgx.LargeObjects {
	if t.usable() != nil {
		return closedTx.LargeObjects()
	}
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
