// Package wire sends transactions to PostgreSQL, and says whether they were committed.
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

type Outcome int

const (
	Aborted Outcome = iota // the server said so, or never got to it
	Committed
	InDoubt
)

// Send sends one simple-protocol message that ends a transaction, with more statements after that if need be, and
// reads the answer message by message: a warning at COMMIT matters as much as an error. If more of the answer may
// come, it closes the connection.
//
// The statements ahead go out in the same write, with a Sync of their own: the server begins none of sql before all
// has arrived. If one fails, so does sql, and the error is a *StatementError. With an empty sql they go out alone,
// and the outcome is Aborted.
//
// If ctx ends, the server cancels statements ahead that went out alone. Otherwise it goes on: cancelling the wait
// for standbys would show what they don't have yet.
func Send(ctx context.Context, pg *pgconn.PgConn, sql string, ahead ...Statement) (*Answer, Outcome, error) {
	if sql == "" {
		return send(ctx, pg, abandon, sql, ahead)
	}
	return send(ctx, pg, CloseNow, sql, ahead)
}

// SendOwn is Send for transactions of Fencekit's own, which end with ctx.
func SendOwn(ctx context.Context, pg *pgconn.PgConn, sql string) (*Answer, Outcome, error) {
	return send(ctx, pg, abandon, sql, nil)
}

func send(ctx context.Context, pg *pgconn.PgConn, interrupted func(*pgconn.PgConn), sql string, ahead []Statement) (*Answer, Outcome, error) {
	var a Answer
	a.Rows = a.row[:0]
	if pg.IsClosed() {
		return &a, Aborted, pgconn.ErrConnClosed
	}
	if len(ahead) > 0 {
		queue(pg.Frontend(), ahead)
	}
	if sql != "" {
		pg.Frontend().SendQuery(&pgproto3.Query{String: sql})
	}
	// pgconn would set that up for each message.
	stop := context.AfterFunc(ctx, func() { _ = pg.Conn().SetDeadline(time.Unix(1, 0)) }) // mutant: send-without-an-end
	err := a.receive(pg, sql, len(ahead))
	if !stop() {
		interrupted(pg)
		if err != nil && !isStatementError(err) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
	if sql == "" {
		if err != nil && !isStatementError(err) {
			CloseNow(pg)
		}
		return &a, Aborted, err
	}
	result, reason := a.outcome(err)
	if err != nil || result == InDoubt || result == Committed && a.status != 'I' {
		CloseNow(pg)
	}
	if result == InDoubt {
		reason = &unansweredError{reason}
	}
	return &a, result, reason
}

type unansweredError struct{ err error }

func (e *unansweredError) Error() string { return e.err.Error() }
func (e *unansweredError) Unwrap() error { return e.err }

// SafeToRetry returns false: pgx takes every failed read for safe, since it doesn't know that COMMIT was sent.
func (e *unansweredError) SafeToRetry() bool { return false }

type Answer struct {
	Ahead      []Result
	Rows       [][]string
	tag        []byte
	word       [16]byte // memory for tag
	row        [1][]string
	Committed  bool
	warning    error
	failure    error
	After      error
	endedAhead bool // or the transaction never began
	status     byte // of the session; 0 if the answer broke off
}

func (a *Answer) Whole() bool { return a.status != 0 }

func (a *Answer) First() string {
	if len(a.Rows) == 0 {
		return ""
	}
	return strings.Join(a.Rows[0], " ")
}

// receive sends what is queued and reads the answer.
func (a *Answer) receive(pg *pgconn.PgConn, sql string, ahead int) error {
	err := pg.Frontend().Flush()
	if err == nil && ahead > 0 {
		var status byte
		a.Ahead, status, err = readResults(pg, make([]Result, 0, ahead))
		a.endedAhead = status == 'I'
		if isStatementError(err) && status != 0 && sql != "" {
			a.failure, err = err, nil
		}
	}
	for err == nil && sql != "" && a.status == 0 {
		var msg pgproto3.BackendMessage
		if msg, err = pg.ReceiveMessage(context.Background()); err == nil {
			a.take(msg)
		}
	}
	return err
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
			a.failure = cmp.Or(a.failure, error(err)) // a pooler that splits the message gets an error for each later part
		}
	case *pgproto3.ReadyForQuery:
		a.status = msg.TxStatus
	}
}

func (a *Answer) complete(tag []byte) {
	if a.Committed || string(a.tag) == "ROLLBACK" {
		return
	}
	a.tag = append(a.word[:0], tag...)
	if a.Committed = string(tag) == "COMMIT"; !a.Committed {
		a.warning = nil // it belonged to the completed statement
	}
}

// outcome judges the answer, which broke off with err or nil. A pooler may make up an answer, or pass on another
// statement's, so what isn't proved is in doubt. A warning at COMMIT means that the server committed, but the wait
// for its standbys was cancelled.
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
		return Aborted, err // as COMMIT is answered after a failure
	case a.failedInside(err):
		return Aborted, err
	}
	return InDoubt, cmp.Or(err, fmt.Errorf("COMMIT was answered with %q", a.tag)) // mutant: answer-of-commit-that-is-lost-is-failure, answer-of-commit-that-is-lost-is-success
}

// failedInside reports whether err is the server's own, at a point that shows that the transaction failed. The seal, or
// what follows it, is a SELECT of one row: once one has completed, COMMIT may be under way. So it may be behind a read,
// which is never in doubt.
func (a *Answer) failedInside(err error) bool {
	if !FromServer(err) {
		return false
	}
	committing := string(a.tag) == "SELECT 1"
	switch a.status {
	case 0:
		return !committing
	case 'E':
		return true
	default: // COMMIT failed; or a statement before it, without a transaction
		return committing != a.endedAhead // mutant: answer-about-something-else-is-about-commit
	}
}

// abandon closes a connection as pgx does: in the background it cancels what runs and waits until the server ends
// the session. Until then the pool opens no other in its place.
func abandon(pg *pgconn.PgConn) {
	pipeline := pg.StartPipeline(context.Background())
	pipeline.SendFlushRequest()
	_ = pipeline.Close() // pgx closes the connection on a request without a Sync
}

func CloseNow(pg *pgconn.PgConn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = pg.Close(ctx)
}

// limits are PgBouncer's, by what it says when it ends a session.
var limits = map[string]string{
	"query timeout":            "query_timeout of the pooler: raise it, or make the statement shorter",
	"idle transaction timeout": "idle_transaction_timeout of the pooler: raise it, or make the pauses shorter",
	"transaction timeout":      "transaction_timeout of the pooler: raise it, or make the function shorter",
	"PQexec disallowed":        "disable_pqexec of the pooler: set it to 0",
}

const transactionTimeout = "25P04" // from PostgreSQL 17 on

// Limit returns the name of the limit, and the remedy, if err is that of one which the same work would reach again.
func Limit(err error) string {
	var pgErr *pgconn.PgError
	switch {
	case !errors.As(err, &pgErr):
		return ""
	case pgErr.Code == transactionTimeout:
		return "transaction_timeout of the server, the database or the role: raise it, or make the function shorter"
	case FromServer(err):
		return ""
	}
	return limits[pgErr.Message]
}

// FromServer reports whether the server made err: errors of a pooler don't name a routine of the server's source.
func FromServer(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Routine != "" // mutant: answer-of-a-pooler-is-the-servers
}
