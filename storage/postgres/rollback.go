package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// Rollback implements storage.Txn. It gives the connection back to the pool if it is
// fit for that, which the server decides (endIfSupersededSQL), and closes it otherwise.
func (t *txn) Rollback(ctx context.Context) { _ = t.rollback(ctx) }

// rollback is Rollback, and returns the status of the transaction that the begin check has
// seen, if the server was asked for it.
func (t *txn) rollback(ctx context.Context) (status string) {
	if t.conn == nil {
		return ""
	}
	conn := t.conn
	t.conn = nil
	defer conn.Release() // closes what is busy or in a transaction
	pg := conn.Conn().PgConn()
	if t.sent.IsZero() || t.reusable || pg.IsClosed() || pg.IsBusy() {
		return ""
	}
	ctx, cancel := t.store.cleanup(ctx)
	defer cancel()
	return t.end(ctx, pg)
}

// unlisted is how long a transaction may have taken, from the sending of BEGIN to the answer to
// COMMIT, so that no eviction can have listed it more than once: see evict in the migrations. Time
// during which the whole machine was stopped doesn't count, which is why every transaction that
// didn't commit is looked at, however short it seems: one that an eviction has listed for being
// superseded can't commit.
const unlisted = 100 * time.Millisecond

// directKey marks, in a connection's custom data, those that end at a backend and not at a pooler.
const directKey = "fencekit: direct"

// noteBackend notes the id of the backend on which the transaction runs, as the begin check returned it.
func (t *txn) noteBackend(pid string) {
	if t.conn == nil {
		return
	}
	pg := t.conn.Conn().PgConn()
	pg.CustomData()[directKey] = pid == strconv.FormatUint(uint64(pg.PID()), 10)
}

// direct reports whether the connection is known to end at a backend. If not, a pooler may give the
// session to another client as soon as COMMIT is answered.
func (t *txn) direct() bool {
	return t.conn == nil || t.conn.Conn().PgConn().CustomData()[directKey] == true
}

// end ends the transaction, if it is open, and the session, if an eviction may have listed it.
func (t *txn) end(ctx context.Context, pg *pgconn.PgConn) (status string) {
	sql := t.store.sql.after
	if t.xid != "" && !t.readOnly {
		sql += t.statusSQL() + "; "
	}
	sql += t.endIfSupersededSQL()
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

// endIfSupersededSQL makes the server end the session if an eviction may be about to terminate it.
// It is sent after the end of the transaction, in the same message: a pooler in between gives the
// server's connection to another client as soon as that message is answered. It runs in a
// transaction that can't conflict with others, and whose end has no command tag that could be taken
// for that of the guarded one.
func (t *txn) endIfSupersededSQL() string {
	resources, epochs, tokens := claimArrays(t.claims)
	return fmt.Sprintf(t.store.sql.endIfSuperseded, resources, epochs, tokens)
}

// If a function's own SQL committed, the caller must learn of it whatever else failed: the writes
// are durable, so the function must not run again. Neither a command tag nor the session's status
// shows a `commit; begin` within one text. So after a failure the store asks for the status of the
// transaction that the begin check saw: in the message that rolls back or, if that connection was
// lost, on another one. A read-only transaction has no status.

// These are the answers to statusSQL. They can be wrong after a failover that lost the newest
// transactions; at worst, a function that could run again then doesn't.
const (
	statusCommitted  = "committed"
	statusAborted    = "aborted"
	statusInProgress = "in progress"
)

func (t *txn) statusSQL() string {
	return "select pg_catalog.pg_xact_status('" + t.xid + "'::pg_catalog.xid8)"
}

// statusEvery is how often the server is asked for the status of a transaction whose connection it has
// not yet noticed to be lost.
const statusEvery = 20 * time.Millisecond

// status returns the answer to statusSQL on another connection; "" if there is none. If the connection of
// the transaction was lost, it waits, unless ctx ends, until the server has noticed.
func (t *txn) status(ctx context.Context) string {
	if t.xid == "" || t.readOnly {
		return ""
	}
	bounded, cancel := t.store.cleanup(ctx)
	defer cancel()
	for {
		answer, err := t.store.transact(bounded, t.statusSQL(), "")
		if err != nil {
			return ""
		}
		if status := answer.First(); status != statusInProgress || ctx.Err() != nil {
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

// judge adds to err, which ended the transaction, what its status says. lost says that the
// connection was closed without an error of the server's.
func (t *txn) judge(err error, status string, lost bool) error {
	var again *TransientError
	switch {
	case status == statusCommitted && errors.Is(err, storage.ErrTxEnded):
		return err
	case status == statusCommitted && err == nil: // the operation did not return
		return fmt.Errorf("%w by SQL in the operation: %s", storage.ErrTxEnded, operation.WhatStays)
	case status == statusCommitted:
		return fmt.Errorf("%w by SQL in the operation: %s: %w", storage.ErrTxEnded, operation.WhatStays, err)
	case t.sentControl && err != nil && !errors.Is(err, storage.ErrTxEnded):
		// What failed may be another transaction, behind one that committed.
		if errors.As(err, &again) {
			err = again.Err
		}
		return fmt.Errorf("%w, perhaps, by SQL in the operation: %s: %w", storage.ErrTxEnded, operation.WhatStays, err)
	case status == "" && t.severalStatements && errors.As(err, &again) && sqlstate.Ended(sqlstate.Of(err)): // mutant: tx-that-may-have-committed-runs-again
		return again.Err // a text of several statements may have held a COMMIT
	case status == statusAborted && lost:
		return &TransientError{err}
	}
	return err
}
