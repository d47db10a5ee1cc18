package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// outcome is what is known of a COMMIT.
type outcome int

const (
	aborted   outcome = iota // the server said so, or never got to it
	committed                // the server said so
	inDoubt                  // sent, and not answered clearly
)

// send sends one simple-protocol message that ends a transaction, and perhaps
// goes on behind that, and reads the answer message by message: a warning at
// COMMIT counts as much as an error. A connection whose state is unknown
// afterwards is closed.
func send(ctx context.Context, pg *pgconn.PgConn, sql string) (*answer, outcome, error) {
	var a answer
	if pg.IsClosed() {
		return &a, aborted, errors.New("connection is closed")
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = pg.Conn().SetWriteDeadline(deadline)
		defer func() { _ = pg.Conn().SetWriteDeadline(time.Time{}) }()
	}
	pg.Frontend().SendQuery(&pgproto3.Query{String: sql})
	err := pg.Frontend().Flush()
	if err == nil {
		err = a.read(ctx, pg)
	}
	if err != nil {
		closeNow(pg)
	}
	result, err := a.outcome(err)
	if result == inDoubt {
		err = &unansweredError{err}
	}
	return &a, result, err
}

// unansweredError is why the outcome of a COMMIT is in doubt.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// SafeToRetry answers pgconn.SafeToRetry: pgx marks every error of reading a
// message as safe, not knowing what had been sent.
func (e *unansweredError) SafeToRetry() bool { return false }

// answer gathers the server's answer to such a message.
type answer struct {
	rows      [][]string // of all statements
	sealed    bool       // what stands before COMMIT has come to its end
	committed bool       // COMMIT has
	warning   error      // met at COMMIT
	failure   error
	tag       string // of the last statement that completed
}

// read reads messages up to the end of the answer.
func (a *answer) read(ctx context.Context, pg *pgconn.PgConn) error {
	for {
		msg, err := pg.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		if a.take(msg) {
			return nil
		}
	}
}

// take takes one message in and reports whether it was the last.
func (a *answer) take(msg pgproto3.BackendMessage) bool {
	switch msg := msg.(type) {
	case *pgproto3.DataRow:
		row := make([]string, len(msg.Values))
		for i, value := range msg.Values {
			row[i] = string(value)
		}
		a.rows = append(a.rows, row)
	case *pgproto3.CommandComplete:
		a.tag = string(msg.CommandTag)
		a.sealed = a.sealed || a.tag == "CALL" || a.tag == "SELECT 1"
		a.committed = a.committed || a.tag == "COMMIT"
	case *pgproto3.NoticeResponse:
		if a.sealed && !a.committed && msg.SeverityUnlocalized == "WARNING" {
			a.warning = fmt.Errorf("the server warned at COMMIT: %s (SQLSTATE %s)", msg.Message, msg.Code)
		}
	case *pgproto3.ErrorResponse:
		a.failure = pgconn.ErrorResponseToPgError(msg)
	case *pgproto3.ReadyForQuery:
		return true
	}
	return false
}

// outcome judges the answer, which broke off with err if that is not nil. A
// warning at COMMIT is how the server says that it committed here but not where
// its standbys are (the wait for them was cancelled): neither success nor failure.
func (a *answer) outcome(err error) (outcome, error) {
	var fatal *pgconn.PgError
	switch {
	case a.committed && a.warning != nil:
		return inDoubt, a.warning
	case a.committed:
		return committed, nil
	case a.failure != nil && err == nil:
		return aborted, a.failure
	case errors.As(err, &fatal) && !a.sealed && fromServer(fatal):
		// The server ended the session, and what stands before COMMIT had not come
		// to its end: COMMIT was never begun. A pooler between that has lost it
		// knows nothing.
		return aborted, err
	case err != nil:
		return inDoubt, err
	}
	return aborted, fmt.Errorf("%w: the server answered COMMIT with %q", pgx.ErrTxCommitRollback, a.tag)
}

// closeNow closes a connection whose state is unknown, without waiting.
func closeNow(pg *pgconn.PgConn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = pg.Close(ctx)
}

// transact runs sql, one statement with a result of one row, in a transaction of
// its own at READ COMMITTED. When it returns nil that has committed, and the first
// row of the answer is the result. What stands behind, if anything, runs after
// that, and may have failed.
func (s *Store) transact(ctx context.Context, sql, behind string) (*answer, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer s.release(ctx, conn)
	a, _, err := send(ctx, conn.Conn().PgConn(), s.transactSQL(sql, behind))
	return a, reached(err)
}

func (s *Store) transactSQL(sql, behind string) string {
	return fmt.Sprintf("%s; set local lock_timeout = %d; %s; commit; %s", beginRC, ms(s.cfg.LockTimeout), sql, behind)
}
