package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// members is what a transaction keeps for and between its members (RunMember).
type members struct {
	// savepoint is that of the next member, set in the message that ended the one before.
	// Each name is random and used once: SQL of a later member must not be able to roll back
	// an earlier one.
	savepoint string
	deferred  string // SQL that defers again the constraints that initially are; "" if there are none
	last      bool   // no other member may follow
	waited    bool   // for a lock, in vain: somebody stale may hold it
	over      error  // why the transaction can't commit
}

// RunMember implements storage.Txn. The end of a member costs one message, in which its
// deferred constraints are checked, its savepoint is released, and that of the next one
// is set.
func (t *txn) RunMember(ctx, whole context.Context, op storage.Op[pgx.Tx]) (err error) {
	if t.conn == nil || t.failed {
		return storage.ErrTxEnded
	}
	t.failed = true // until the member has been released or undone
	o, err := t.beginMember(ctx, whole)
	if err != nil {
		return t.endOver(ctx, err)
	}
	defer func() { // also if op panics or ends its goroutine
		if t.failed {
			err = t.undoMember(ctx, whole, o, err)
		}
	}()
	if err = op.Run(ctx, &memberTx{o.Tx(), whole}); !o.Finish() {
		err = o.Verdict(err)
	}
	if err == nil {
		err = context.Cause(ctx) // the last moment at which ctx can end the member alone
	}
	if err == nil {
		err = t.releaseMember(whole)
		t.members.last = t.members.last || o.ChangedSettings() // what it set, the next one would have
	}
	return err
}

// Over implements storage.Txn.
func (t *txn) Over() error { return t.members.over }

// Last implements storage.Txn.
func (t *txn) Last() bool { return t.members.last }

// beginMember begins a member, whose savepoint may have been set before.
func (t *txn) beginMember(ctx, whole context.Context) (*operation.Operation, error) {
	if !t.begun {
		if err := t.beginNow(whole); err != nil {
			return nil, err
		}
	}
	var sql []string
	if t.members.savepoint == "" {
		t.members.savepoint = newSavepoint()
		sql = append(sql, t.store.sql.deferred, "savepoint "+t.members.savepoint)
	}
	if limit, ok := t.memberTimeout(ctx); ok {
		sql = append(sql, fmt.Sprintf("set local statement_timeout = %d", ms(limit)))
	}
	if len(sql) > 0 {
		results, err := t.conn.Conn().PgConn().Exec(whole, strings.Join(sql, "; ")).ReadAll()
		if err != nil {
			return nil, err
		}
		if err := t.members.noteDeferred(results); err != nil {
			return nil, err
		}
	}
	return operation.New(t.conn.Conn(), nil), nil
}

// beginNow begins the transaction in a round trip of its own.
func (t *txn) beginNow(ctx context.Context) error {
	o := &opening{t: t, conn: t.conn.Conn()}
	_, err := o.Begin(ctx, func(change func()) error { change(); return nil })
	t.begun, t.state, t.xid, t.beginErr = o.begun, o.head.state, o.head.xid, o.err
	return err
}

// memberTimeout returns the bound of a member's statements, if the end of ctx comes before
// that of the store. To interrupt a statement would end the transaction for all members.
func (t *txn) memberTimeout(ctx context.Context) (time.Duration, bool) {
	deadline, ok := ctx.Deadline()
	left := max(time.Until(deadline), time.Millisecond)
	return left, ok && left < t.store.cfg.StatementTimeout
}

func newSavepoint() string { return fmt.Sprintf("fencekit_%016x", rand.Uint64()) }

// noteDeferred notes which constraints are initially deferred, if results begin with that.
// If one of them can't be named without naming another one as well, what a member leaves
// behind can't be reset, and no other may follow.
func (m *members) noteDeferred(results []*pgconn.Result) error {
	if len(results) == 0 || len(results[0].FieldDescriptions) == 0 {
		return nil
	}
	if len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 2 {
		return errors.New("postgres: the answer lacks the deferred constraints")
	}
	row := results[0].Rows[0]
	if m.last = string(row[1]) != "f"; len(row[0]) > 0 && !m.last {
		m.deferred = "; set constraints " + string(row[0]) + " deferred"
	}
	return nil
}

// releaseMember checks the member's deferred constraints and makes its work that of the
// transaction. Deferred triggers may defer others: see sealSQL. "All immediate" outlasts the
// savepoint, so what is initially deferred is deferred again for the next member.
func (t *txn) releaseMember(whole context.Context) error {
	const check = "set constraints all immediate; set constraints all immediate; "
	next := newSavepoint()
	sql := check + "release savepoint " + t.members.savepoint +
		fmt.Sprintf("; set local statement_timeout = %d", ms(t.store.cfg.StatementTimeout)) + t.members.deferred + "; savepoint " + next
	results, err := t.conn.Conn().PgConn().Exec(whole, sql).ReadAll()
	switch {
	case err == nil:
		t.members.savepoint, t.failed = next, false
	case len(results) > 2 && results[2].Err == nil && results[2].CommandTag.String() == "RELEASE":
		t.members.over = err // it can't be undone alone any more
	}
	return err
}

// undoMember undoes a member that was not released, after err, which is nil if its operation
// did not return. If the member can't be undone alone, the transaction is over.
func (t *txn) undoMember(ctx, whole context.Context, o *operation.Operation, err error) error {
	if o.Finish() {
		t.finish(o)
		return t.endOver(ctx, errors.Join(err, operation.ErrInUse))
	}
	t.severalStatements = o.SeveralStatements()
	verdict := o.Verdict(err) // says also whether the transaction has been ended
	if verdict == nil {
		verdict = whole.Err()
	}
	pg := t.conn.Conn().PgConn()
	serializable := t.store.cfg.Isolation == pgx.Serializable && sqlstate.Of(verdict) == sqlstate.Serialization
	if t.members.over != nil || errors.Is(verdict, storage.ErrTxEnded) || pg.IsClosed() || whole.Err() != nil || serializable {
		return t.endOver(ctx, verdict)
	}
	next, undo := newSavepoint(), "rollback to savepoint "+t.members.savepoint+"; release savepoint "+t.members.savepoint
	if _, undone := pg.Exec(whole, undo+"; savepoint "+next).ReadAll(); undone != nil {
		if sqlstate.Of(undone) == sqlstate.NoSavepoint {
			undone = fmt.Errorf("%w by SQL in the operation: %s: %w", storage.ErrTxEnded, operation.WhatStays, undone)
		}
		return t.endOver(ctx, errors.Join(undone, err))
	}
	t.members.savepoint, t.failed = next, false
	t.members.waited = t.members.waited || sqlstate.Of(err) == sqlstate.LockTimeout
	return t.store.named(err)
}

// endOver ends the transaction for all members.
func (t *txn) endOver(ctx context.Context, err error) error {
	t.members.over = storage.ErrTxEnded // for an operation that did not return
	err = t.fail(ctx, storage.StageRun, err)
	if err != nil {
		t.members.over = err
	}
	return err
}

// releaseSQL releases the savepoint of a member that did not come, in front of the seal, which
// runs in no savepoint.
func (m *members) releaseSQL() string {
	if m.savepoint == "" {
		return ""
	}
	return "release savepoint " + m.savepoint + "; "
}
