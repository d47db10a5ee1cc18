// Package wire talks to the server for the store: it takes connections from the pool, sends
// the messages that end transactions, and distinguishes the server's errors from those of a
// pooler or a network in between.
package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// Outcome is what is known about a COMMIT.
type Outcome int

const (
	Aborted   Outcome = iota // the server said so, or never got to it, or none was sent
	Committed                // the server said so
	InDoubt                  // sent, and not answered clearly
)

// Send sends one simple-protocol message that ends a transaction, possibly with more statements after that, and
// reads the answer message by message: a warning at COMMIT matters as much as an error. If more of the answer may
// still arrive, it closes the connection.
//
// The statements ahead go out in the same write, with a Sync of their own: the server begins none of sql before
// all of sql has arrived. If one of them fails, so does sql, and the error is a *StatementError.
//
// If ctx ends, the server goes on: cancelling the wait for standbys would make visible what they don't have yet.
//
// With an empty sql the statements ahead go out alone, the outcome is Aborted, and the server cancels them if ctx ends.
func Send(ctx context.Context, pg *pgconn.PgConn, sql string, ahead ...Statement) (*Answer, Outcome, error) {
	if sql == "" {
		return send(ctx, pg, abandon, sql, ahead)
	}
	return send(ctx, pg, CloseNow, sql, ahead)
}

// SendOwn is Send for a transaction of the store's own. If ctx ends, the server cancels it.
func SendOwn(ctx context.Context, pg *pgconn.PgConn, sql string) (*Answer, Outcome, error) {
	return send(ctx, pg, abandon, sql, nil)
}

func send(ctx context.Context, pg *pgconn.PgConn, interrupted func(*pgconn.PgConn), sql string, ahead []Statement) (*Answer, Outcome, error) {
	var a Answer
	if pg.IsClosed() {
		return &a, Aborted, errors.New("connection is closed")
	}
	if len(ahead) > 0 {
		queue(pg.Frontend(), ahead)
	}
	if sql != "" {
		pg.Frontend().SendQuery(&pgproto3.Query{String: sql})
	}
	end := watch(ctx, pg, interrupted)
	err := pg.Frontend().Flush()
	if err == nil && len(ahead) > 0 {
		var status byte
		a.Ahead, status, err = readResults(pg)
		a.endedAhead = status == 'I'
		if isStatementError(err) && status != 0 && sql != "" {
			a.failure, err = err, nil
		}
	}
	if sql == "" {
		if err = end(err); err != nil && !isStatementError(err) {
			CloseNow(pg)
		}
		return &a, Aborted, err
	}
	if err == nil {
		err = a.read(pg)
	}
	err = end(err)
	result, reason := a.outcome(err)
	if err != nil || result == InDoubt || result == Committed && a.status != 'I' {
		CloseNow(pg)
	}
	if result == InDoubt {
		reason = &unansweredError{reason}
	}
	return &a, result, reason
}

// watch interrupts reads and writes of pg when ctx ends, once for a whole exchange: pgconn would watch ctx for
// each message. The caller calls end with the exchange's error. If ctx has ended, end returns why, and closes the
// connection with interrupted.
func watch(ctx context.Context, pg *pgconn.PgConn, interrupted func(*pgconn.PgConn)) (end func(error) error) {
	stop := context.AfterFunc(ctx, func() { _ = pg.Conn().SetDeadline(time.Unix(1, 0)) }) // mutant: send-without-an-end
	return func(err error) error {
		if stop() {
			return err
		}
		interrupted(pg)
		if err != nil && !isStatementError(err) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return err
	}
}

// unansweredError is why the outcome of a COMMIT is in doubt.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// SafeToRetry returns false, for pgconn.SafeToRetry: pgx marks every error of reading a
// message as safe to retry, since it doesn't know that COMMIT was sent.
func (e *unansweredError) SafeToRetry() bool { return false }

// Answer is the server's answer to the message of Send.
type Answer struct {
	Ahead      []Result   // of the statements ahead
	Rows       [][]string // of all statements of the message
	tag        []byte     // of the last statement that completed, up to COMMIT's
	Committed  bool       // COMMIT completed
	warning    error      // met by COMMIT
	failure    error      // met by COMMIT, or before it
	After      error      // met after COMMIT
	endedAhead bool       // the statements ahead have ended the transaction, or it never began
	status     byte       // of the session at the end of the answer; 0 if it broke off
}

// Whole reports whether all of the answer came.
func (a *Answer) Whole() bool { return a.status != 0 }

// First returns the first row, its values separated by spaces.
func (a *Answer) First() string {
	if len(a.Rows) == 0 {
		return ""
	}
	return strings.Join(a.Rows[0], " ")
}

func (a *Answer) read(pg *pgconn.PgConn) error {
	for a.status == 0 {
		msg, err := pg.ReceiveMessage(context.Background())
		if err != nil {
			return err
		}
		a.take(msg)
	}
	return nil
}

func (a *Answer) take(msg pgproto3.BackendMessage) {
	switch msg := msg.(type) {
	case *pgproto3.DataRow:
		a.Rows = append(a.Rows, values(msg))
	case *pgproto3.CommandComplete:
		a.complete(msg.CommandTag)
	case *pgproto3.NoticeResponse:
		if !a.Committed && msg.SeverityUnlocalized == "WARNING" {
			a.warning = fmt.Errorf("the server warned at COMMIT: %s (SQLSTATE %s)", msg.Message, msg.Code)
		}
	case *pgproto3.ErrorResponse:
		if err := pgconn.ErrorResponseToPgError(msg); a.Committed {
			a.After = err
		} else {
			a.failure = cmp.Or(a.failure, error(err)) // a pooler that splits the message gets an error for each part after it
		}
	case *pgproto3.ReadyForQuery:
		a.status = msg.TxStatus
	}
}

func (a *Answer) complete(tag []byte) {
	if a.Committed || string(a.tag) == "ROLLBACK" {
		return // statements after COMMIT are no part of the transaction
	}
	a.tag = append(a.tag[:0], tag...)
	if a.Committed = string(tag) == "COMMIT"; !a.Committed {
		a.warning = nil // it belonged to the statement that this tag completes
	}
}

// outcome judges the answer, which broke off with err if that is not nil. A pooler in between may make up an answer,
// or pass on one that belongs to another statement. Whatever isn't proved is in doubt.
//
// By a warning at COMMIT the server says that it committed, but not on its standbys: the wait for them was cancelled.
func (a *Answer) outcome(err error) (Outcome, error) {
	if err == nil {
		err = a.failure
	}
	switch {
	case a.Committed && a.failure != nil: // mutant: answer-with-an-error-and-a-commit-is-success
		return InDoubt, a.failure // a failed transaction's COMMIT says ROLLBACK
	case a.Committed && a.warning != nil: // mutant: answer-of-commit-that-warns-is-success
		return InDoubt, a.warning
	case a.Committed:
		return Committed, nil
	case string(a.tag) == "ROLLBACK" && FromServer(a.failure):
		return Aborted, err // the server answers so to the COMMIT of a transaction that has failed
	case a.failedInside(err):
		return Aborted, err
	}
	return InDoubt, cmp.Or(err, fmt.Errorf("COMMIT was answered with %q", a.tag)) // mutant: answer-of-commit-that-is-lost-is-failure, answer-of-commit-that-is-lost-is-success
}

// failedInside reports whether err is the server's own and came at a point of the answer that shows that the
// transaction failed. One that writes has a CALL last before COMMIT: after that has completed, COMMIT is under way.
// One that only reads has a SELECT there, and is never in doubt.
func (a *Answer) failedInside(err error) bool {
	if !FromServer(err) {
		return false
	}
	switch a.status {
	case 0: // the server ended the session
		return string(a.tag) != "CALL"
	case 'E': // the transaction has failed, and waits for its end
		return true
	default: // COMMIT failed; or a statement before it, without a transaction
		return (string(a.tag) == "CALL") != a.endedAhead // mutant: answer-about-something-else-is-about-commit
	}
}

// abandon closes a connection in the middle of an exchange as pgx does when a context ends: a goroutine of pgx's
// cancels what runs and waits for the server to end the session. Until then the pool opens no other in its place.
func abandon(pg *pgconn.PgConn) {
	pipeline := pg.StartPipeline(context.Background())
	pipeline.SendFlushRequest()
	_ = pipeline.Close() // with a request that no Sync ends: pgx closes the connection
}

// CloseNow closes a connection whose state is unknown, without waiting.
func CloseNow(pg *pgconn.PgConn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = pg.Close(ctx)
}
