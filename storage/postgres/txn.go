package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// txn is a guarded transaction on a connection of its own.
type txn struct {
	store    *Store
	conn     *pgxpool.Conn // nil once the transaction has ended
	claims   []storage.Claim
	id       storage.TxID
	sent     time.Time // when BEGIN was sent first
	begun    bool      // BEGIN and the begin check have succeeded
	xid      string    // the id of the transaction, which the begin check has returned; "" before it has begun
	reusable bool      // no eviction has listed the transaction, or the server was asked to end the session if one may have
	failed   bool      // an operation failed: nothing may commit
	queue    batchQueue
	ran      int  // how often Run was called
	group    bool // calls on several resources share it: see BeginGroup

	readOnly bool

	opening  *opening // of the operation that runs, if the transaction had not begun before
	beginErr error    // why it could not begin

	deferrable        bool // a text of an operation's may have made something that can be deferred until COMMIT
	look              int  // the number of the look for what can be deferred that the message of COMMIT takes; 0: none
	committed         bool // by a statement of a batch, without a seal
	severalStatements bool // an operation sent a text of several statements, such as COMMIT
	sentControl       bool // an operation sent a text that may have begun or ended a transaction
}

// Begin implements storage.Store. It takes a connection and sends nothing: BEGIN and the
// begin check go out with the first statement, or with the seal if there is none; see the
// function begin_check in the migrations.
func (s *Store) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[pgx.Tx], error) {
	return s.begin(ctx, claims, false)
}

// BeginReadOnly implements storage.Store. It sends nothing either.
func (s *Store) BeginReadOnly(ctx context.Context, claims ...storage.Claim) (storage.Txn[pgx.Tx], error) {
	return s.begin(ctx, claims, true)
}

func (s *Store) begin(ctx context.Context, claims []storage.Claim, readOnly bool) (storage.Txn[pgx.Tx], error) {
	if err := storage.CheckClaims(claims); err != nil {
		return nil, err
	}
	t := &txn{store: s, claims: slices.Clone(claims), id: newTxID(), readOnly: readOnly}
	var err error
	if t.conn, err = wire.Acquire(ctx, s.pool); err != nil {
		return nil, s.explain(ctx, wire.FailedAt("begin", err), false, storage.StageBegin, t.claims...)
	}
	return t, nil
}

// CanGroup implements storage.GroupStore. It is false at SERIALIZABLE, where transactions of
// several resources conflict because their rows share pages of an index.
func (s *Store) CanGroup() bool { return s.cfg.Isolation != pgx.Serializable }

// BeginGroup implements storage.GroupStore.
func (s *Store) BeginGroup(ctx context.Context, members func() []storage.Claim) (storage.Txn[pgx.Tx], error) {
	conn, err := wire.Acquire(ctx, s.pool)
	if err != nil {
		return nil, s.named(wire.FailedAt("begin", err))
	}
	claims := members()
	if err := storage.CheckClaims(claims); err != nil {
		conn.Release()
		return nil, err
	}
	return &txn{store: s, conn: conn, claims: slices.Clone(claims), id: newTxID(), group: len(claims) > 1}, nil
}

// Run implements storage.Txn. An operation that fails ends the transaction.
func (t *txn) Run(ctx context.Context, op storage.Op[pgx.Tx]) error {
	if t.conn == nil || t.failed {
		return storage.ErrTxEnded
	}
	t.failed = true // until op has returned nil: it may panic
	t.ran++
	if b, ok := op.(*Batch); ok {
		if err := t.runBatch(ctx, b); err != nil {
			return err
		}
	} else if err := t.runNow(ctx, op); err != nil {
		return err
	}
	t.failed = false
	return nil
}

// runNow runs op, behind the batches that are queued.
func (t *txn) runNow(ctx context.Context, op storage.Op[pgx.Tx]) error {
	if err := t.sendQueued(ctx); err != nil {
		return err
	}
	if err := t.run(ctx, op); err != nil {
		return t.fail(ctx, storage.StageRun, err)
	}
	return nil
}

func (t *txn) run(ctx context.Context, op storage.Op[pgx.Tx]) error {
	o := t.operation()
	defer t.finish(o) // also if op panics
	err := op.Run(ctx, o.Tx())
	inUse := t.finish(o)
	switch {
	case inUse && errors.Is(err, operation.ErrInUse):
		return err
	case inUse:
		return errors.Join(err, operation.ErrInUse)
	}
	return o.Verdict(err)
}

// operation begins an operation's use of the connection.
func (t *txn) operation() *operation.Operation {
	if t.begun {
		return operation.New(t.conn.Conn(), nil)
	}
	t.opening = &opening{t: t, conn: t.conn.Conn()}
	return operation.New(t.conn.Conn(), t.opening)
}

// finish ends an operation's use of the connection, and reports whether it is still in use.
// If it is, finish cuts it: it can neither go back to the pool nor be closed cleanly.
func (t *txn) finish(o *operation.Operation) (inUse bool) {
	inUse = o.Finish()
	if inUse && t.conn != nil {
		_ = t.conn.Hijack().PgConn().Conn().Close() // mutant: tx-of-a-goroutine-left-behind-stays
		t.conn = nil
	}
	t.severalStatements = t.severalStatements || !inUse && o.SeveralStatements()
	t.sentControl = t.sentControl || !inUse && o.SentControl()
	t.deferrable = t.deferrable || !inUse && o.MentionsDeferrable()
	if opening := t.opening; opening != nil && !inUse {
		t.opening = nil
		t.sent, t.begun, t.xid, t.beginErr = opening.sent, opening.begun, opening.head.xid, opening.err
		t.noteBackend(opening.head.pid)
	}
	return inUse
}

// fail ends the transaction after err, and returns what err means. After a lock timeout it
// evicts: a stale transaction that began after the claim's own eviction may have the lock. The
// calls of a group don't need that: each evicts when it runs alone. If the connection or ctx has
// ended, the cause may be that the grant was superseded.
func (t *txn) fail(ctx context.Context, stage storage.Stage, err error) error {
	ended := t.conn == nil || t.conn.Conn().IsClosed() || ctx.Err() != nil
	lost := t.conn != nil && t.conn.Conn().IsClosed() && ctx.Err() == nil && sqlstate.Of(err) == ""
	status := t.rollback(ctx)
	switch {
	case t.committed:
		status = statusCommitted
	case status == "" && ended:
		status = t.status(ctx)
	}
	if t.beginErr != nil {
		return t.store.explain(ctx, t.beginErr, ended, storage.StageBegin, t.claims...)
	}
	if t.readOnly && sqlstate.Of(err) == sqlstate.ReadOnly {
		err = fmt.Errorf("%w (the call has the option guard.ReadOnly)", err)
	}
	if !t.group && (sqlstate.Of(err) == sqlstate.LockTimeout || errors.Is(err, errPrepare)) { // mutant: tx-blocked-by-a-stale-one-evicts-nothing
		t.evict(ctx)
	}
	return t.judge(t.store.explain(ctx, err, ended, stage, t.claims...), status, lost)
}

// evict ends transactions of earlier grants. The transaction has ended: it holds no connection.
func (t *txn) evict(ctx context.Context) {
	ctx, cancel := t.store.cleanup(ctx)
	defer cancel()
	t.store.evict(ctx, grantsOf(t.claims))
}
