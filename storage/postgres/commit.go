package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/fencekit/fencekit/guard"
)

// outcome is what is known of a COMMIT.
type outcome int

const (
	aborted   outcome = iota // the server said so, or never got to it
	committed                // the server said so
	inDoubt                  // sent, and not answered clearly
)

// Commit implements guard.Txn: seal and COMMIT in one message, of which the
// server runs nothing before all of it has arrived. Deferred constraints are
// checked first, under statement_timeout: behind the seal they would hold the
// fence for as long as they take.
func (t *txn) Commit(ctx context.Context, ops []guard.OpRecord) ([]guard.Claim, error) {
	if t.conn == nil || t.failed {
		t.Rollback(ctx)
		return nil, guard.ErrTxEnded
	}
	defer t.Rollback(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sql, err := t.sealSQL(ops)
	if err != nil {
		return nil, err
	}
	pg := t.conn.Conn().PgConn()
	result, err := sendCommit(ctx, pg, sql)
	ended := pg.IsClosed()
	if result == inDoubt {
		closeNow(pg)
	}
	t.Rollback(ctx)
	switch result {
	case committed:
		return t.moved(), nil
	case inDoubt:
		return nil, &guard.InDoubtError{InDoubt: guard.InDoubt{Claims: t.claims, Tx: t.id}, Err: err}
	default:
		return nil, t.store.explain(ctx, fmt.Errorf("postgres: commit: %w", err), ended, guard.StageSeal, t.grants()...)
	}
}

// moved returns the claims where the seals have left them.
func (t *txn) moved() []guard.Claim {
	claims := slices.Clone(t.claims)
	for i := range claims {
		claims[i].Position = guard.Position{Seq: claims[i].Seq + 1, Tx: t.id}
	}
	return claims
}

// sealSQL seals in the order of the resources' numbers, so that transactions over
// the same resources can't wait for each other in a circle.
func (t *txn) sealSQL(ops []guard.OpRecord) (string, error) {
	if ops == nil {
		ops = []guard.OpRecord{}
	}
	record, err := json.Marshal(ops)
	if err != nil {
		return "", fmt.Errorf("postgres: operations can't be recorded: %w", err)
	}
	inOrder := slices.SortedFunc(slices.Values(t.claims), func(a, b guard.Claim) int { return int(a.Resource - b.Resource) })
	var sql strings.Builder
	sql.WriteString("set constraints all immediate; ")
	for _, c := range inOrder {
		g := c.Grant
		fmt.Fprintf(&sql, t.store.sql.seal, c.Resource, g.Epoch, int64(g.Token), g.Holder, c.Seq, int64(c.Tx), int64(t.id), record)
		sql.WriteString("; ")
	}
	sql.WriteString("commit")
	return sql.String(), nil
}

// sendCommit sends a seal message and reads the answer, message by message: a
// warning behind the seal counts as much as an error.
func sendCommit(ctx context.Context, pg *pgconn.PgConn, sql string) (outcome, error) {
	if pg.IsClosed() {
		return aborted, errors.New("connection is closed")
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = pg.Conn().SetWriteDeadline(deadline)
		defer func() { _ = pg.Conn().SetWriteDeadline(time.Time{}) }()
	}
	pg.Frontend().SendQuery(&pgproto3.Query{String: sql})
	if err := pg.Frontend().Flush(); err != nil {
		return inDoubt, err
	}
	return readCommit(ctx, pg)
}

func readCommit(ctx context.Context, pg *pgconn.PgConn) (outcome, error) {
	var answer commitAnswer
	for {
		msg, err := pg.ReceiveMessage(ctx)
		var fatal *pgconn.PgError
		switch {
		case errors.As(err, &fatal) && !answer.sealed:
			// The server ended the session, and the seal had not come to its end:
			// COMMIT, which stands behind it, was never begun.
			return aborted, err
		case err != nil:
			return inDoubt, err
		}
		if answer.take(msg) {
			return answer.outcome()
		}
	}
}

// commitAnswer gathers the server's answer to a seal message.
type commitAnswer struct {
	sealed  bool   // a seal has come to its end
	tag     string // of the last statement that completed
	warning error  // met behind the seal
	failure error
}

// take takes one message in and reports whether it was the last.
func (a *commitAnswer) take(msg pgproto3.BackendMessage) bool {
	switch msg := msg.(type) {
	case *pgproto3.CommandComplete:
		a.tag = string(msg.CommandTag)
		a.sealed = a.sealed || a.tag == "CALL"
	case *pgproto3.NoticeResponse:
		if a.sealed && msg.SeverityUnlocalized == "WARNING" {
			a.warning = fmt.Errorf("the server warned at COMMIT: %s (SQLSTATE %s)", msg.Message, msg.Code)
		}
	case *pgproto3.ErrorResponse:
		a.failure = pgconn.ErrorResponseToPgError(msg)
	case *pgproto3.ReadyForQuery:
		return true
	}
	return false
}

// outcome judges a complete answer. A warning behind the seal is how the server
// says that it committed here but not where its standbys are (the wait for them
// was cancelled): neither success nor failure.
func (a *commitAnswer) outcome() (outcome, error) {
	switch {
	case a.failure != nil:
		return aborted, a.failure
	case a.warning != nil:
		return inDoubt, a.warning
	case a.tag != "COMMIT":
		return aborted, fmt.Errorf("the server answered COMMIT with %q", a.tag)
	}
	return committed, nil
}

// closeNow closes a connection whose state is unknown, without waiting.
func closeNow(pg *pgconn.PgConn) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = pg.Close(ctx)
}
