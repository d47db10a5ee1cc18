package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// members is what a transaction keeps for and between its members (RunMember).
type members struct {
	set        bool // the savepoint is set
	unreleased bool // it has the work of a member that succeeded
	limited    bool // that member's statements had a limit of their own
	constraints
	last   bool  // no other member may follow
	waited bool  // a member waited for a lock until the lock timeout: a stale transaction may hold it
	over   error // why the transaction can't commit
}

// newSavepoint returns the name of the savepoint of members. It is random, so that it can't
// clash with one that an operation uses. One name suffices: that of the member before has been
// released, so no SQL can roll back to it.
func newSavepoint() string { return fmt.Sprintf("fencekit_%016x", rand.Uint64()) }

// RunMember implements storage.Txn. One write releases the savepoint of the member before, if
// that can't fail (see releasedLater), sets that of this member, and carries its first statement.
func (t *txn) RunMember(ctx, whole context.Context, op storage.Op[pgx.Tx]) (err error) {
	if t.conn == nil || t.failed {
		return storage.ErrTxEnded
	}
	t.failed = true // until the member has succeeded or been undone
	if err := t.beginMembers(whole); err != nil {
		return t.endOver(ctx, err)
	}
	first := t.newMemberOpening(ctx, whole)
	o := first.operation()
	defer func() { // also if op panics or ends its goroutine
		if t.failed {
			err = t.undoMember(ctx, whole, o, first, err)
		}
	}()
	err = op.Run(ctx, &memberTx{o.Tx(), whole})
	if o.Finish() {
		return err
	}
	if err = o.Verdict(err); err == nil {
		err = cmp.Or(whole.Err(), context.Cause(ctx)) // the last moment at which ctx can end the member alone
	}
	if err == nil {
		err = t.endMember(whole, o, first)
	}
	return err
}

// Over implements storage.Txn.
func (t *txn) Over() error { return t.members.over }

// Last implements storage.Txn.
func (t *txn) Last() bool { return t.members.last }

// OneSnapshot implements storage.Txn.
func (t *txn) OneSnapshot() bool { return t.store.cfg.Isolation != pgx.ReadCommitted }

// beginMembers begins the transaction in a round trip of its own, if it has not begun.
func (t *txn) beginMembers(ctx context.Context) error {
	if t.begun {
		return nil
	}
	t.prepareWanted(ctx)
	o := &opening{t: t, conn: t.conn.Conn()}
	_, err := o.Begin(ctx, func(change func()) error { change(); return nil })
	t.begun, t.state, t.xid, t.beginErr = o.begun, o.head.state, o.head.xid, o.err
	return err
}

// endMember hands the work of a member that succeeded over to the transaction.
func (t *txn) endMember(whole context.Context, o *operation.Operation, first *memberOpening) error {
	t.members.note(first)
	if first.sent {
		t.members.unreleased = true
		if !t.releasedLater(o, first) {
			if err := t.releaseMember(whole); err != nil {
				return err
			}
		}
	}
	t.members.last = t.members.last || o.ChangedSettings() // what it set, the next one would have
	t.failed = false
	return nil
}

// note notes what the first statement of a member has brought.
func (m *members) note(first *memberOpening) {
	if !first.sent {
		return
	}
	m.set, m.unreleased, m.limited = true, false, first.limit > 0
	if first.asked {
		m.constraints, m.last = first.constraints, first.shared
	}
}

// minLater is the shortest limit of a member's statements with which its savepoint is released
// later. The limit is still in force then, and must not end the transaction for all.
const minLater = time.Second

// releasedLater reports whether the savepoint of a member that succeeded may be released in one
// write with what comes next. By then the member can't fail alone any more. So it must leave no
// constraint to be checked, and its SQL must not have ended the transaction, as far as is seen.
func (t *txn) releasedLater(o *operation.Operation, first *memberOpening) bool {
	return !t.members.deferrable && !o.MayHaveEndedTx() && (first.limit == 0 || first.limit >= minLater)
}

// releaseMember checks the deferred constraints of the member that has run and releases its
// savepoint. Deferred triggers may defer others: see sealSQL. "All immediate" outlasts the
// savepoint, so what is initially deferred is deferred again for the next member. Where no
// constraint can be deferred there is nothing to check; if one has been made meanwhile, the seal
// checks it.
func (t *txn) releaseMember(whole context.Context) error {
	sql, released := "", 0
	if t.members.deferrable {
		sql, released = "set constraints all immediate; set constraints all immediate; ", 2
	}
	sql += t.releaseSQL() + t.members.deferred + t.store.sql.savepoint
	results, err := t.conn.Conn().PgConn().Exec(whole, sql).ReadAll()
	switch {
	case err == nil:
		t.members.unreleased, t.members.limited = false, false
	case len(results) > released && results[released].Err == nil && results[released].CommandTag.String() == "RELEASE":
		t.members.over = err // it can't be undone alone any more
	}
	return err
}

// releaseSQL releases the savepoint, and puts the limit of statements back. It stands in front
// of the seal as well, which runs in no savepoint.
func (t *txn) releaseSQL() (sql string) {
	if t.members.set {
		sql = t.store.sql.release + "; "
	}
	if t.members.limited {
		sql += t.store.sql.limit + "; "
	}
	return sql
}

// undoMember undoes a member that did not succeed, after err, which is nil if its operation
// did not return. If the member can't be undone alone, the transaction is over.
func (t *txn) undoMember(ctx, whole context.Context, o *operation.Operation, first *memberOpening, err error) error {
	if o.Finish() {
		t.finish(o)
		return t.endOver(ctx, errors.Join(err, operation.ErrInUse))
	}
	t.severalStatements = o.SeveralStatements()
	verdict := o.Verdict(err) // says also whether the transaction has been ended
	if verdict == nil {
		verdict = whole.Err()
	}
	if first.err != nil {
		return t.endBefore(ctx, first.err, err)
	}
	pg := t.conn.Conn().PgConn()
	serializable := t.store.cfg.Isolation == pgx.Serializable && sqlstate.Of(verdict) == sqlstate.Serialization
	if t.members.over != nil || errors.Is(verdict, storage.ErrTxEnded) || pg.IsClosed() || whole.Err() != nil || serializable {
		return t.endOver(ctx, verdict)
	}
	if first.sent {
		t.members.note(first)
		if undone := t.rollBackMember(whole); undone != nil {
			return t.endOver(ctx, errors.Join(undone, err))
		}
	}
	t.failed = false
	t.members.waited = t.members.waited || sqlstate.Of(err) == sqlstate.LockTimeout
	return t.store.named(err)
}

// rollBackMember rolls back to the savepoint, which stays for the next member.
func (t *txn) rollBackMember(whole context.Context) error {
	_, err := t.conn.Conn().PgConn().Exec(whole, t.store.sql.undo).ReadAll()
	t.members.unreleased, t.members.limited = false, false
	return lacksSavepoint(err)
}

// lacksSavepoint says what it means if err is the lack of the savepoint.
func lacksSavepoint(err error) error {
	if sqlstate.Of(err) == sqlstate.NoSavepoint {
		return fmt.Errorf("%w by SQL in the operation: %s: %w", storage.ErrTxEnded, operation.WhatStays, err)
	}
	return err
}

// errMemberBefore is the error of a member that ran no statement, since one before it had
// ended the transaction.
var errMemberBefore = errors.New("postgres: a member before this one has ended the transaction")

// endBefore ends the transaction for all members, for the reason why, before any statement of the
// member that failed with err.
func (t *txn) endBefore(ctx context.Context, why, err error) error {
	if errors.Is(why, storage.ErrTxEnded) {
		_ = t.endOver(ctx, why)
		return errMemberBefore
	}
	if !errors.Is(err, why) {
		err = errors.Join(why, err)
	}
	return t.endOver(ctx, err)
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
