package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/internal/wire"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/usertx"
)

type txn struct {
	store    *Store
	conn     *pgxpool.Conn
	claims   []storage.Claim
	id       storage.TxID
	reusable bool // no eviction has listed it
	failed   bool
	queue    batchQueue
	ran      int // how many functions and batches

	readOnly bool
	own      []storage.Claim // as the caller saw them, if the transaction makes its claims
	wait     int64           // for each fence, at most, in milliseconds

	beginning

	texts     usertx.Texts
	ahead     sentBatches // of the message that was sent last
	seals     []seal
	look      int  // number of deferrable's look that goes out with COMMIT, or 0
	committed bool // by a batch, without a seal

	room struct { // for a transaction of one resource and one function, which then allocates none
		userTx userTx
		sent   [4]wire.Statement // head, and first statement
		values [8][]byte
		text   [64]byte
		seal   [1]seal
		moved  [1]storage.Claim
	}
}

// beginning is what is known of how the transaction began, or failed to.
type beginning struct {
	sent     time.Time // zero if nothing was
	begun    bool
	xid      string
	prepared bool // the connection has prepared the head, and so the statements that end the transaction
	beginErr error
}

func (b *beginning) sending() {
	if b.sent.IsZero() {
		b.sent = time.Now()
	}
}

// Begin implements storage.Store. It takes a connection and sends nothing: see head.
func (s *Store) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[pgx.Tx], error) {
	return s.begin(ctx, &txn{}, claims)
}

// BeginReadOnly implements storage.Store. It sends nothing either.
func (s *Store) BeginReadOnly(ctx context.Context, claims ...storage.Claim) (storage.Txn[pgx.Tx], error) {
	return s.begin(ctx, &txn{readOnly: true}, claims)
}

func (s *Store) begin(ctx context.Context, t *txn, claims []storage.Claim) (storage.Txn[pgx.Tx], error) {
	if err := storage.CheckClaims(claims); err != nil {
		return nil, err
	}
	conn, err := acquireConn(ctx, s.pool)
	if err != nil {
		return nil, s.named(failedAt("begin", err))
	}
	t.store, t.conn, t.claims, t.id = s, conn, claims, newTxID()
	return t, nil
}

// Run implements storage.Txn. A function that fails ends the transaction.
func (t *txn) Run(ctx context.Context, op storage.Op[pgx.Tx]) (err error) {
	if t.conn == nil || t.failed {
		return storage.ErrTxEnded
	}
	t.failed = true // until op returns nil: it may panic
	t.ran++
	if b, ok := op.(*Batch); ok {
		err = t.runBatch(ctx, b)
	} else if err = t.sendQueued(ctx); err == nil {
		if err = t.run(ctx, op); err != nil {
			err = t.fail(ctx, storage.StageRun, err)
		}
	}
	t.failed = err != nil
	return err
}

func (t *txn) run(ctx context.Context, op storage.Op[pgx.Tx]) error {
	u := &t.room.userTx
	if u.t != nil { // a goroutine that an earlier function left behind may still use that
		u = &userTx{}
	}
	u.Conn, u.Texts, u.beginning, u.t = t.conn.Conn(), t.texts, t.beginning, t
	inUse, err := t.call(ctx, op, u)
	if !inUse {
		return u.Verdict(err)
	}
	if !errors.Is(err, usertx.ErrInUse) {
		err = errors.Join(err, usertx.ErrInUse)
	}
	return fmt.Errorf("%w, perhaps: what the function has left open may have sent COMMIT: %w", storage.ErrTxEnded, err)
}

func (t *txn) call(ctx context.Context, op storage.Op[pgx.Tx], u *userTx) (inUse bool, err error) {
	defer func() { inUse = t.finish(u) }()
	if t.begun {
		return false, op.Run(ctx, u.Start(nil))
	}
	return false, op.Run(ctx, u.Start(u))
}

// finish cuts a connection that is still in use: it can neither go back to the pool nor be closed cleanly.
func (t *txn) finish(u *userTx) (inUse bool) {
	if u.Finish() {
		if t.conn != nil {
			_ = t.conn.Hijack().PgConn().Conn().Close() // mutant: tx-of-a-goroutine-left-behind-stays
			t.conn = nil
		}
		return true
	}
	t.texts, t.beginning = u.Texts, u.beginning
	return false
}

// head returns BEGIN and the begin check: in two parts, since the second needs a snapshot that follows the lock of the
// first. The second is a query where it can be prepared, since that costs the server less than a function. At
// SERIALIZABLE a query could read the whole table and conflict with every move; a function has settings of its own. The
// answer's last row ends with what transactionID selects.
func (t *txn) head() []wire.Statement {
	if t.own != nil {
		return t.ownHead()
	}
	c, q := t.claims[0], &t.store.sql
	begin, id := q.begin, []byte(nil)
	if t.readOnly {
		begin, id = q.beginReadOnly, []byte(rand.Text())
	}
	m := &t.room
	head := append(slices.Grow(m.sent[:0], 3+t.queue.statements), wire.Statement{SQL: begin})
	if c.Looked { // the end compares all; and no eviction may take it for a transaction of that holder
		return append(head, statement(q.checkPrimary, append(m.values[:0], id)))
	}
	values := append(integers(m.values[:0], m.text[:0], c.Resource, int64(c.Grant.Token), ms(t.store.cfg.times.Lock), c.Resource, c.Grant.Epoch, int64(c.Grant.Token)), id)
	head = append(head, statement(q.limits, values[:3]))
	if len(t.claims) == 1 && t.store.cfg.Isolation != pgx.Serializable && t.store.mode == pgx.QueryExecModeCacheStatement {
		return append(head, statement(q.check, values[3:]))
	}
	a := arraysOf(t.claims)
	return append(head, statement(q.checkAll, [][]byte{a.resources, a.epochs, a.tokens, id}))
}

func statement(sql string, params [][]byte) wire.Statement {
	return wire.Statement{SQL: sql, ExtendedQueryBuilder: pgx.ExtendedQueryBuilder{ParamValues: params}}
}

func (t *txn) ownHead() []wire.Statement {
	q, a := &t.store.sql, arraysOf(t.own)
	if t.own[0].Grant.Token == 0 {
		a.epochs, a.tokens = nil, nil
	}
	params := append(t.room.values[:0], a.names, a.holders, a.seqs, nil, a.txs, a.epochs, a.tokens, appendInteger(t.room.text[:0], t.wait))
	return append(t.room.sent[:0], wire.Statement{SQL: q.begin}, statement(q.claimHere, params))
}

func textOf(head []wire.Statement) string {
	texts := make([]string, len(head))
	for i, s := range head {
		for n, param := range s.ParamValues {
			value := "null"
			if param != nil {
				value = "'" + string(param) + "'"
			}
			s.SQL = strings.ReplaceAll(s.SQL, "$"+strconv.Itoa(n+1), value)
		}
		texts[i] = s.SQL
	}
	return strings.Join(texts, "; ")
}

// reconnect gives the old connection back first: the pool may have only one. It changes t within change.
func (t *txn) reconnect(ctx context.Context, change func(func()) error) (*pgxpool.Conn, error) {
	var old *pgxpool.Conn
	if err := change(func() { old, t.conn = t.conn, nil }); err != nil {
		return nil, err
	}
	wire.CloseNow(old.Conn().PgConn())
	old.Release()
	conn, err := acquireConn(ctx, t.store.pool)
	if err != nil {
		return nil, err
	}
	if err = change(func() { t.conn = conn }); err != nil {
		conn.Release()
	}
	return conn, err
}

var atOnce = func(change func()) error { change(); return nil }

// boundExchange bounds the wait for the answer to n statements, because the server's limits are not in force yet and an
// answer may be lost.
func (t *txn) boundExchange(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(t.answerLimit(n), func() { cancel(t.noAnswer(n)) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

func (t *txn) answerLimit(n int) time.Duration {
	return time.Duration(n)*t.store.cfg.StatementTimeout + t.store.cfg.times.Network // mutant: first-statement-without-an-end
}

func (t *txn) noAnswer(n int) error {
	return fmt.Errorf("%w: no answer within %v (postgres.Config.StatementTimeout is %v, and the network has %v)", storage.ErrStoreUnavailable, t.answerLimit(n), t.store.cfg.StatementTimeout, t.store.cfg.times.Network)
}

// cause names err if an exchange took too long: its context has ended then, or the connection's own deadline has
// passed.
func (t *txn) cause(ctx context.Context, err error) error {
	switch because := context.Cause(ctx); {
	case err != nil && errors.Is(because, storage.ErrStoreUnavailable):
		return because
	case because == nil && errors.Is(err, os.ErrDeadlineExceeded):
		return t.noAnswer(1)
	}
	return err
}

// fail ends the transaction after err. After a lock timeout it evicts: a stale transaction that began after the
// claim's eviction may have the lock.
func (t *txn) fail(ctx context.Context, stage storage.Stage, err error) error {
	ended := t.conn == nil || t.conn.Conn().IsClosed() || ctx.Err() != nil
	lost := t.conn != nil && t.conn.Conn().IsClosed() && ctx.Err() == nil && isBroken(err)
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
	// A claim of its own has superseded nobody now; a stale transaction makes the next one a claim that evicts.
	if t.own == nil && (sqlstate.Of(err) == sqlstate.LockTimeout || errors.Is(err, errPrepare)) { // mutant: tx-blocked-by-a-stale-one-evicts-nothing
		ctx, cancel := t.store.cleanup(ctx)
		t.store.evict(ctx, t.claims)
		cancel()
	}
	return t.judge(t.store.explain(ctx, err, ended, stage, t.claims...), status, lost)
}

// Rollback implements storage.Txn. The server decides whether the connection may be reused (endIfSupersededSQL).
func (t *txn) Rollback(ctx context.Context) { _ = t.rollback(ctx) }

func (t *txn) rollback(ctx context.Context) (status string) {
	if t.conn == nil {
		return ""
	}
	conn := t.conn
	t.conn = nil
	defer conn.Release() // closes a connection that isn't idle
	pg := conn.Conn().PgConn()
	if t.sent.IsZero() || t.reusable || pg.IsClosed() || pg.IsBusy() {
		return ""
	}
	ctx, cancel := t.store.cleanup(ctx)
	defer cancel()
	return t.end(ctx, pg)
}

// listable reports whether an eviction may list the transaction: see evict in the migrations.
func (t *txn) listable() bool { return t.own == nil && !t.claims[0].Looked }

// directKey marks connections that end at a backend, not at a pooler.
const directKey = "fencekit: direct"

// readIDs notes what transactionID selects.
func (b *beginning) readIDs(pg *pgconn.PgConn, ids string) {
	var pid string
	b.xid, pid, _ = strings.Cut(ids, " ")
	own := strconv.AppendUint(make([]byte, 0, 10), uint64(pg.PID()), 10)
	pg.CustomData()[directKey] = string(own) == pid
}

// direct reports whether the connection is known to end at a backend. A pooler may give the session away as soon as
// COMMIT is answered.
func (t *txn) direct() bool {
	return t.conn == nil || t.conn.Conn().PgConn().CustomData()[directKey] == true
}

// end also ends the session if an eviction may have listed it.
func (t *txn) end(ctx context.Context, pg *pgconn.PgConn) (status string) {
	sql := t.store.sql.after
	if t.xid != "" && !t.readOnly {
		sql += t.statusSQL() + "; "
	}
	if t.listable() {
		sql += t.endIfSupersededSQL() // mutant: rollback-does-not-look
	}
	if pg.TxStatus() != 'I' {
		sql = "rollback; " + sql
	}
	results, err := pg.Exec(ctx, sql).ReadAll()
	if err != nil {
		wire.CloseNow(pg)
	}
	for _, result := range results {
		if len(result.Rows) == 1 && status == "" {
			status = string(result.Rows[0][0])
		}
	}
	return status
}

// endIfSupersededSQL ends the session if an eviction may be about to. It is in the message that ends the
// transaction, after whose answer a pooler may give the session away. Its own transaction can't conflict, and ends
// without a command tag that could be taken for COMMIT's.
func (t *txn) endIfSupersededSQL() string {
	a := arraysOf(t.claims)
	return fmt.Sprintf(t.store.sql.endIfSuperseded, a.resources, a.epochs, a.tokens)
}

// If a function's own SQL committed, it must not run again. Neither a command tag nor the session's status shows a
// `commit; begin` within one text. So after a failure the store asks for the status of the begin check's
// transaction: in the message that rolls back, or on another connection if that one was lost. A read-only
// transaction has none.

// Answers to statusSQL. After a failover that lost transactions they can be wrong: at worst a function then doesn't
// run again although it could.
const (
	statusCommitted  = "committed"
	statusAborted    = "aborted"
	statusInProgress = "in progress"
)

func (t *txn) statusSQL() string {
	return "select pg_catalog.pg_xact_status('" + t.xid + "'::pg_catalog.xid8)"
}

const statusEvery = 20 * time.Millisecond

// status asks on another connection, until the server has noticed that the transaction's was lost, or ctx ends.
func (t *txn) status(ctx context.Context) string {
	if t.xid == "" || t.readOnly {
		return ""
	}
	bounded, cancel := t.store.cleanup(ctx)
	defer cancel()
	for {
		answer, err := t.store.transact(bounded, t.store.recallSQL(storage.OnceKey{}, t.claims[:1])+"; "+t.statusSQL(), "")
		switch {
		case isFuture(err) && len(answer.Rows) == 1 && slices.Equal(answer.Rows[0][:7], whereLeft(t.claims[0])):
			return statusAborted
		case err != nil, len(answer.Rows) != 2:
			return ""
		}
		if status := answer.Rows[1][0]; status != statusInProgress || ctx.Err() != nil {
			return status
		}
		select {
		case <-time.After(statusEvery):
		case <-ctx.Done():
		case <-bounded.Done():
			return statusInProgress
		}
	}
}

// isFuture reports whether the server has yet to give the transaction's id to one, as after a crash that took all of
// it. Nothing of it was committed then, if that server goes on with the log in which the transaction began: a COMMIT
// would be in that log, behind the id. A standby that was promoted, and may lack both, has another timeline, and the
// fence isn't where the claim left it.
func isFuture(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Routine == "TransactionIdInRecentPast"
}

// judge adds to err what status says. lost means that the connection broke, and that err says no more. Without a
// status nothing was committed, since nothing has sent a COMMIT, unless a text of several statements did.
func (t *txn) judge(err error, status string, lost bool) error {
	var again *TransientError
	switch {
	case status == statusCommitted && errors.Is(err, storage.ErrTxEnded):
		return err
	case status == statusCommitted && err == nil: // the function panicked or ended its goroutine
		return fmt.Errorf("%w by SQL in the function: %s", storage.ErrTxEnded, usertx.WhatStays)
	case status == statusCommitted:
		return fmt.Errorf("%w by SQL in the function: %s: %w", storage.ErrTxEnded, usertx.WhatStays, err)
	case t.texts.Control && err != nil && !errors.Is(err, storage.ErrTxEnded):
		// What failed may be another transaction, behind one that committed.
		if errors.As(err, &again) {
			err = again.Err
		}
		return fmt.Errorf("%w, perhaps, by SQL in the function: %s: %w", storage.ErrTxEnded, usertx.WhatStays, err)
	case status == "" && t.texts.Several && errors.As(err, &again) && sqlstate.Ended(sqlstate.Of(err)): // mutant: tx-that-may-have-committed-runs-again
		return again.Err // it may have held a COMMIT
	case lost && (status == statusAborted || status == "" && !t.texts.Several) && !errors.As(err, new(*storage.RejectedError)):
		return &TransientError{err}
	}
	return err
}
