package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/operation"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlstate"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// txn is a guarded transaction on a connection of its own.
type txn struct {
	store  *Store
	conn   *pgxpool.Conn // nil once the transaction has ended
	claims []storage.Claim
	id     storage.TxID
	state  string // of the session, when the transaction began; as SQL
	left   bool   // leaveSQL has run: the server has ended the session if it must not be used again
	failed bool   // an operation failed: nothing may commit
	queue  batchQueue
}

// Begin implements storage.Store: one round trip. It begins the transaction and runs the
// begin check; see the function begin_check in the migrations.
func (s *Store) Begin(ctx context.Context, claims ...storage.Claim) (storage.Txn[pgx.Tx], error) {
	if len(claims) == 0 {
		return nil, fmt.Errorf("%w: Begin needs a claim", fence.ErrInvalid)
	}
	for i, c := range claims {
		if slices.ContainsFunc(claims[:i], func(other storage.Claim) bool { return other.Resource == c.Resource }) {
			return nil, fmt.Errorf("%w: Begin has two claims of %s", fence.ErrInvalid, c.Grant.Resource)
		}
	}
	t := &txn{store: s, claims: slices.Clone(claims), id: newTxID()}
	var err error
	var ended bool
	for range tries {
		if ended, err = t.begin(ctx); sqlstate.Of(err) != sqlstate.Terminated {
			break
		}
	}
	if err != nil {
		return nil, s.explain(ctx, wire.FailedAt("begin", err), ended, storage.StageBegin, t.claims...)
	}
	return t, nil
}

// begin begins the transaction on a connection of the pool. If it fails it holds none, and
// ended says whether the connection was lost.
func (t *txn) begin(ctx context.Context) (ended bool, err error) {
	if t.conn, err = wire.Acquire(ctx, t.store.pool); err != nil {
		return false, err
	}
	pg := t.conn.Conn().PgConn()
	results, err := pg.Exec(ctx, t.beginSQL()).ReadAll()
	if err == nil {
		if t.state, err = readState(results); err != nil {
			wire.CloseNow(pg) // the server's own answer may be yet to come
		}
	}
	if err != nil {
		ended = pg.IsClosed()
		t.state = t.store.sql.state // no operation has run
		t.Rollback(ctx)
		return ended, wire.Reached(err)
	}
	return false, nil
}

// readState reads the state of the session from the answer to beginSQL.
func readState(results []*pgconn.Result) (string, error) {
	if len(results) < 2 || len(results[1].Rows) != 1 || len(results[1].Rows[0]) != 1 {
		return "", errors.New("the answer lacks the state of the session: a pooler in between may have made it up")
	}
	return string(results[1].Rows[0][0]), nil
}

func (t *txn) beginSQL() string {
	var sql strings.Builder
	sql.WriteString(t.store.sql.begin + "; select " + t.store.sql.state)
	for _, c := range t.claims {
		sql.WriteString("; ")
		fmt.Fprintf(&sql, t.store.sql.beginCheck, c.Resource, c.Grant.Epoch, int64(c.Grant.Token), int64(t.id))
	}
	return sql.String()
}

// Run implements storage.Txn. An operation that fails ends the transaction.
func (t *txn) Run(ctx context.Context, op storage.Op[pgx.Tx]) error {
	if t.conn == nil || t.failed {
		return storage.ErrTxEnded
	}
	t.failed = true // until op has returned nil: it may panic
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
	o := operation.New(t.conn.Conn())
	defer t.finish(o) // also if op panics
	err := op.Run(ctx, o.Tx())
	switch inUse := o.Finish(); {
	case inUse && errors.Is(err, operation.ErrInUse):
		return err
	case inUse:
		return errors.Join(err, operation.ErrInUse)
	}
	return o.Verdict(err)
}

// finish ends an operation's use of the connection. If the connection is still in use,
// finish cuts it: it can neither go back to the pool nor be closed cleanly.
func (t *txn) finish(o *operation.Operation) {
	if o.Finish() {
		_ = t.conn.Hijack().PgConn().Conn().Close()
		t.conn = nil
	}
}

// fail ends the transaction after err and says what err means. After a lock timeout it
// evicts: a stale transaction that began after the claim's own eviction may have the lock.
// If the connection or ctx has ended, the cause may be that the grant was superseded.
func (t *txn) fail(ctx context.Context, stage storage.Stage, err error) error {
	ended := t.conn == nil || t.conn.Conn().IsClosed() || ctx.Err() != nil
	t.Rollback(ctx)
	if sqlstate.Of(err) == sqlstate.LockTimeout {
		evictCtx, cancel := t.store.cleanup(ctx)
		defer cancel()
		for _, c := range t.claims {
			t.store.evict(evictCtx, c.Grant)
		}
	}
	return t.store.explain(ctx, err, ended, stage, t.claims...)
}
