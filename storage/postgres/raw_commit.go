package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
)

// If a function's own SQL committed, the caller must learn of it whatever else failed: the writes
// are durable, so the function must not run again. Neither a command tag nor the session's status
// shows a `commit; begin` within one text. So after a failure the store asks for the status of the
// transaction that the begin check saw: in the message that rolls back or, if that connection was
// lost, on another one. A read-only transaction has no status.

// These are the answers to statusSQL. They can be wrong after a failover that lost the newest
// transactions; at worst, a function that could run again then doesn't.
const (
	statusCommitted = "committed"
	statusAborted   = "aborted"
)

func (t *txn) statusSQL() string {
	return "select pg_catalog.pg_xact_status('" + t.xid + "'::pg_catalog.xid8)"
}

// status returns the answer to statusSQL on another connection; "" if there is none.
func (t *txn) status(ctx context.Context) string {
	if t.xid == "" || t.readOnly {
		return ""
	}
	ctx, cancel := t.store.cleanup(ctx)
	defer cancel()
	answer, err := t.store.transact(ctx, t.statusSQL(), "")
	if err != nil {
		return ""
	}
	return answer.First()
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
