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

// newSavepoint returns the name of the savepoint in which each member runs. It is random, so that
// it can't be one that an operation uses. All members can share it: the savepoint of one is
// released before that of the next is set, so no SQL can roll back to an earlier member's.
func newSavepoint() string { return fmt.Sprintf("fencekit_%016x", rand.Uint64()) }

// RunMember implements storage.Txn. The member's first statement goes out in one write with what
// sets its savepoint, and releases that of the member before if it was left to this one (see
// releasedLater).
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
	t.sentControl = t.sentControl || o.SentControl()
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

// endMember makes the work of a member that succeeded part of the transaction: from here on only
// the end of the whole transaction undoes it. Its savepoint may be released later.
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
	t.members.last = t.members.last || o.ChangedSettings() // the next member would run under its settings
	t.failed = false
	return nil
}

// note takes over what a member's opening has sent and learned.
func (m *members) note(first *memberOpening) {
	if !first.sent {
		return
	}
	m.set, m.unreleased, m.limited = true, false, first.limit > 0
	if first.asked {
		m.constraints, m.last = first.constraints, first.shared
	}
}

// minLater is the shortest limit of its own with which a member's savepoint may be released later.
// The limit is in force until then: if it ran out at the release, it would end the transaction
// for all members.
const minLater = time.Second

// releasedLater reports whether the savepoint of a member that succeeded may be released in one
// write with what comes next: the next member, or the seal. The member can't fail alone by then,
// so there must be no deferrable constraint to check, and its SQL must not have ended the
// transaction, as far as texts and command tags show.
func (t *txn) releasedLater(o *operation.Operation, first *memberOpening) bool {
	return !t.members.deferrable && !o.MayHaveEndedTx() && (first.limit == 0 || first.limit >= minLater)
}

// releaseMember checks the deferred constraints of the member that has run and releases its
// savepoint. It checks them twice, since deferred triggers may defer others. "All immediate" outlasts the
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
		if sqlstate.Of(err) == sqlstate.NoObject {
			err = &TransientError{err} // a constraint is gone that was to be deferred again
		}
		t.members.over = err // it can't be undone alone any more
	}
	return err
}

// releaseSQL returns what releases the savepoint and restores the store's limit on statements. It
// also goes out ahead of the seal, which runs in no savepoint.
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
	t.severalStatements, t.sentControl = o.SeveralStatements(), t.sentControl || o.SentControl()
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

// lacksSavepoint returns err, or if err says that the savepoint is gone, an error that says why:
// SQL of the operation has ended the transaction.
func lacksSavepoint(err error) error {
	if sqlstate.Of(err) == sqlstate.NoSavepoint {
		return fmt.Errorf("%w by SQL in the operation: %s: %w", storage.ErrTxEnded, operation.WhatStays, err)
	}
	return err
}

// errMemberBefore is the error of a member that ran no statement because SQL of one before it has
// ended the transaction.
var errMemberBefore = errors.New("postgres: a member before this one has ended the transaction")

// endBefore ends the transaction for all members because of why, which failed before the member
// could run its first statement. err is what the member's operation then returned.
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

// endOver ends the transaction for all members because of err, and returns what err means.
func (t *txn) endOver(ctx context.Context, err error) error {
	t.members.over = storage.ErrTxEnded // for an operation that did not return
	err = t.fail(ctx, storage.StageRun, err)
	if err != nil {
		t.members.over = err
	}
	return err
}
