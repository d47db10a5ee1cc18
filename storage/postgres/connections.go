package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// acquire takes a connection from the pool.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, &noConnectionError{err: err}
	}
	conn, err := pool.Acquire(ctx)
	switch {
	case errors.As(err, new(*pgconn.ConnectError)):
		return nil, &unavailableError{err}
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &noConnectionError{why: awaited(pool.Stat()), err: err}
	case err != nil:
		return nil, &noConnectionError{err: err}
	}
	return conn, nil
}

// awaited says for what a call has waited that got no connection in time.
func awaited(stat *pgxpool.Stat) string {
	if stat.AcquiredConns() >= stat.MaxConns() {
		return fmt.Sprintf("all of its connections (MaxConns is %d) are in use: ", stat.MaxConns())
	}
	return fmt.Sprintf("the server did not answer (%d of at most %d connections are in use): ", stat.AcquiredConns(), stat.MaxConns())
}

// noConnectionError is why the pool gave no connection.
type noConnectionError struct {
	why string
	err error
}

func (e *noConnectionError) Error() string {
	return "postgres: no connection from the pool: " + e.why + e.err.Error()
}

func (e *noConnectionError) Unwrap() error { return e.err }

// failedAt names the step that failed with err, unless there was no connection for
// it: guard names the step as well.
func failedAt(step string, err error) error {
	if errors.Is(err, ErrUnavailable) || errors.As(err, new(*noConnectionError)) {
		return err
	}
	return fmt.Errorf("postgres: %s: %w", step, err)
}

// release gives back the connection of a transaction of the store's own.
func (s *Store) release(ctx context.Context, conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() != 'I' {
		ctx, cancel := s.cleanup(ctx)
		defer cancel()
		_, _ = conn.Exec(ctx, "rollback") // if it fails, the pool closes the connection
	}
	conn.Release()
}

// Rollback implements storage.Txn. It gives the connection back to the pool if it is
// fit for that, which the server decides (leaveSQL), and closes it otherwise.
func (t *txn) Rollback(ctx context.Context) {
	if t.conn == nil {
		return
	}
	conn := t.conn
	t.conn = nil
	defer conn.Release() // closes what is busy or in a transaction
	pg := conn.Conn().PgConn()
	if t.left || pg.IsClosed() || pg.IsBusy() {
		return
	}
	ctx, cancel := t.store.cleanup(ctx)
	defer cancel()
	t.leave(ctx, pg)
}

// leave ends the transaction, if it is open, and the session, if it must not be
// used again.
func (t *txn) leave(ctx context.Context, pg *pgconn.PgConn) {
	sql := t.leaveSQL()
	if pg.TxStatus() != 'I' {
		sql = "rollback; " + sql
	}
	if _, err := pg.Exec(ctx, sql).ReadAll(); err != nil {
		closeNow(pg)
	}
}

// leaveSQL asks of the server, behind the end of the transaction and in the same
// message, to end the session if an eviction may be about to hit it, or if the
// operation has left anything there. A pooler in between would give the server's
// connection to another client as soon as the message is answered. It runs in a
// transaction that neither meets nor makes conflicts, whose end has no tag that could
// be taken for that of the guarded one.
func (t *txn) leaveSQL() string {
	var sql strings.Builder
	sql.WriteString("set local transaction isolation level read committed, read only")
	for _, c := range t.claims {
		fmt.Fprintf(&sql, "; "+t.store.sql.leave, c.Resource, c.Grant.Epoch, int64(c.Grant.Token), t.state)
	}
	return sql.String()
}
