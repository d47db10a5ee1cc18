package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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
// COMMIT counts as much as an error. A connection on which more of an answer may
// come is closed: it would be taken for the answer to what is asked next.
func send(ctx context.Context, pg *pgconn.PgConn, sql string) (*answer, outcome, error) {
	var a answer
	if pg.IsClosed() {
		return &a, aborted, errors.New("connection is closed")
	}
	stop := context.AfterFunc(ctx, func() { _ = pg.Conn().SetWriteDeadline(time.Unix(1, 0)) })
	pg.Frontend().SendQuery(&pgproto3.Query{String: sql})
	err := pg.Frontend().Flush()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = a.read(ctx, pg)
	}
	result, reason := a.outcome(err)
	if err != nil || result == inDoubt || result == committed && a.status != 'I' {
		closeNow(pg)
	}
	if result == inDoubt {
		reason = &unansweredError{reason}
	}
	return &a, result, reason
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
	tag       string     // of the last statement that completed, up to COMMIT's
	committed bool       // COMMIT completed
	warning   error      // met by COMMIT
	failure   error      // met by COMMIT, or before it
	behind    error      // met after COMMIT
	status    byte       // of the session at the end of the answer; 0 if it broke off
}

// first returns the first row, its values separated by spaces.
func (a *answer) first() string {
	if len(a.rows) == 0 {
		return ""
	}
	return strings.Join(a.rows[0], " ")
}

// read reads messages up to the end of the answer.
func (a *answer) read(ctx context.Context, pg *pgconn.PgConn) error {
	for a.status == 0 {
		msg, err := pg.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		a.take(msg)
	}
	return nil
}

// take takes one message in.
func (a *answer) take(msg pgproto3.BackendMessage) {
	switch msg := msg.(type) {
	case *pgproto3.DataRow:
		row := make([]string, len(msg.Values))
		for i, value := range msg.Values {
			row[i] = string(value)
		}
		a.rows = append(a.rows, row)
	case *pgproto3.CommandComplete:
		a.complete(string(msg.CommandTag))
	case *pgproto3.NoticeResponse:
		if !a.committed && msg.SeverityUnlocalized == "WARNING" {
			a.warning = fmt.Errorf("the server warned at COMMIT: %s (SQLSTATE %s)", msg.Message, msg.Code)
		}
	case *pgproto3.ErrorResponse:
		if err := pgconn.ErrorResponseToPgError(msg); a.committed {
			a.behind = err
		} else {
			a.failure = cmp.Or(a.failure, error(err)) // a pooler that splits the message gets an error for each part behind it
		}
	case *pgproto3.ReadyForQuery:
		a.status = msg.TxStatus
	}
}

func (a *answer) complete(tag string) {
	if a.committed || a.tag == "ROLLBACK" {
		return // what stands behind is no part of the transaction
	}
	a.tag = tag
	switch {
	case tag == "COMMIT":
		a.committed = true
	case !a.committed:
		a.warning = nil // it was about the statement that this tag is of
	}
}

// outcome judges the answer, which broke off with err if that is not nil. Only the
// server knows, and only about the transaction: a pooler in between may say
// anything, or hand on what the server said to something else. What isn't proved is
// in doubt.
//
// A warning at COMMIT is how the server says that it committed here but not where
// its standbys are (the wait for them was cancelled): neither success nor failure.
func (a *answer) outcome(err error) (outcome, error) {
	if err == nil {
		err = a.failure
	}
	switch {
	case a.committed && a.failure != nil:
		return inDoubt, a.failure // a failed transaction's COMMIT says ROLLBACK
	case a.committed && a.warning != nil:
		return inDoubt, a.warning
	case a.committed:
		return committed, nil
	case a.tag == "ROLLBACK":
		return aborted, cmp.Or(err, pgx.ErrTxCommitRollback)
	case a.failedInside(err):
		return aborted, err
	}
	return inDoubt, cmp.Or(err, fmt.Errorf("COMMIT was answered with %q", a.tag))
}

// failedInside reports whether err is the server's own and its place in the answer
// shows that the transaction failed. The last statement before the COMMIT of a guarded
// transaction is a CALL: after that has completed, COMMIT is under way.
func (a *answer) failedInside(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || !fromServer(pgErr) {
		return false
	}
	switch a.status {
	case 0: // the server ended the session
		return a.tag != "CALL"
	case 'E': // the transaction has failed, and waits for its end
		return true
	default: // COMMIT failed
		return a.tag == "CALL"
	}
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
// that, and may have failed. If the connection was terminated, perhaps before it
// left the pool, sql is run again on another. It may have committed the first time:
// that only makes a refusal count twice.
func (s *Store) transact(ctx context.Context, sql, behind string) (a *answer, err error) {
	for range tries {
		if a, err = s.transactOnce(ctx, sql, behind); sqlState(err) != stateTerminated {
			break
		}
	}
	return a, err
}

func (s *Store) transactOnce(ctx context.Context, sql, behind string) (*answer, error) {
	conn, err := acquire(ctx, s.pool)
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
