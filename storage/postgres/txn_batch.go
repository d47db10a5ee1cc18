package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fencekit/fencekit/internal/callback"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/sqlwords"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// runBatch queues b. It is sent with the seal, or before the next operation that isn't a
// Batch.
func (t *txn) runBatch(ctx context.Context, b *Batch) error {
	if err := b.validate(); err != nil {
		return t.fail(ctx, storage.StageRun, &storage.OpError{Number: t.ran - 1, Err: err})
	}
	t.deferrable = t.deferrable || b.mentionsDeferrable()
	if t.queue.add(b, t.ran-1) {
		return nil
	}
	if err := t.sendQueued(ctx); err != nil {
		return err
	}
	t.queue.add(b, t.ran-1)
	return nil
}

// sendQueued sends the queued batches without the seal.
func (t *txn) sendQueued(ctx context.Context) error {
	if len(t.queue.batches) == 0 {
		return nil
	}
	bounded, bound := t.boundExchange(ctx, t.queue.statements+1)
	defer bound.end()
	var results []wire.Result
	ahead, err := t.deliver(bounded, func(pg *pgconn.PgConn, ahead []wire.Statement) (_ []wire.Result, aborted bool, err error) {
		results, err = wire.ExecAll(bounded, pg, ahead)
		return results, err != nil, err
	})
	t.queue = batchQueue{}
	stage := storage.StageRun
	if errors.As(err, new(*wire.StatementError)) {
		stage, err = ahead.explain(err)
	}
	if err != nil {
		return t.fail(ctx, stage, cause(bounded, err))
	}
	ahead.read(results)
	return nil
}

// deliver has write send what is queued, after BEGIN and the begin check if the transaction has
// not begun. In that case nothing stays of a write that was aborted, and deliver repeats it: on
// another connection if the server is away on this one, and once if a statement has to
// be prepared anew. After the transaction has begun, the latter is a transient error.
func (t *txn) deliver(ctx context.Context, write func(*pgconn.PgConn, []wire.Statement) (results []wire.Result, aborted bool, err error)) (*sentBatches, error) {
	prepared := false
	for n := 1; ; n++ {
		ahead, err := t.encodeQueued(ctx)
		if err != nil {
			return nil, err
		}
		t.noteControl(ahead.sent[ahead.head:])
		conn := t.conn.Conn()
		if t.sent.IsZero() {
			t.sent = time.Now()
		}
		results, aborted, err := write(conn.PgConn(), ahead.sent)
		t.note(ahead, results)
		outdated := !prepared && ahead.outdate(conn, err)
		switch {
		case !aborted || t.committed:
			return ahead, err
		case ahead.head > 0 && outdated:
			prepared = true
			if undone := t.beginAnew(ctx); undone != nil {
				return ahead, err
			}
		case ahead.head > 0 && n < tries && len(results) < ahead.head && wire.Away(err):
			if err := t.reconnect(ctx); err != nil {
				return nil, err
			}
		default:
			return ahead, err
		}
	}
}

// beginAnew rolls back a transaction that its first write has begun.
func (t *txn) beginAnew(ctx context.Context) error {
	t.begun, t.xid = false, ""
	t.sent = t.sent.Add(-t.store.unlisted) // so that the end looks
	pg := t.conn.Conn().PgConn()
	if pg.TxStatus() == 'I' {
		return nil
	}
	return pg.Exec(ctx, "rollback").Close()
}

// encodeQueued returns the queued statements as they are to be sent, after BEGIN and the
// begin check if the transaction has not begun. Those that pgx would prepare are prepared
// before BEGIN: one that fails there must not end the transaction. No limit of the server's
// is in force then, so the wait for a lock is bounded here.
func (t *txn) encodeQueued(ctx context.Context) (*sentBatches, error) {
	if t.begun {
		return t.encodeBatches(ctx, nil, 0)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.store.cfg.times.Lock, errPrepare)
	defer cancel()
	var ahead *sentBatches
	head, err := t.encodeHead(ctx)
	if err == nil {
		ahead, err = t.encodeBatches(ctx, head, t.store.mode)
	}
	if err != nil && context.Cause(ctx) == errPrepare {
		err = &TransientError{fmt.Errorf("%w of %v (two fifths of postgres.Config.StatementTimeout): %w", errPrepare, t.store.cfg.times.Lock, err)}
	}
	return ahead, err
}

// encodeBatches encodes the queued batches. If an argument panics, as its driver.Valuer may, and
// other calls share the transaction, encodeBatches returns an error: each of them then runs alone,
// and only the call with that argument panics.
func (t *txn) encodeBatches(ctx context.Context, head []wire.Statement, mode pgx.QueryExecMode) (*sentBatches, error) {
	if t.ran <= 1 {
		return t.queue.encode(ctx, t.conn.Conn(), t.store.sql.schema, head, mode)
	}
	var ahead *sentBatches
	var err error
	failure := callback.Run(func() { ahead, err = t.queue.encode(ctx, t.conn.Conn(), t.store.sql.schema, head, mode) })
	if failure != nil {
		return nil, fmt.Errorf("postgres: an argument of a batch %w", failure)
	}
	return ahead, err
}

var errPrepare = errors.New("postgres: a statement was not prepared within the limit")

// encodeHead returns BEGIN and the begin check. The seal goes out in the same write, so the
// begin check leaves its answer for it in a setting.
func (t *txn) encodeHead(ctx context.Context) ([]wire.Statement, error) {
	args := t.store.sql.aloneArgs
	if t.group {
		args = t.store.sql.groupArgs
	}
	check, params := t.beginCheck(args)
	head := make([]wire.Statement, 0, headLength+t.queue.statements)
	for _, s := range []wire.Statement{{SQL: t.begin()}, {SQL: check, Params: params}} {
		description, err := prepare(ctx, t.conn.Conn(), s.SQL, t.store.mode)
		if err != nil {
			return nil, err
		}
		head = append(head, described(s, description))
	}
	return head, nil
}

// noteControl notes that one of the statements, as its rewriter has returned it, begins or ends a
// transaction.
func (t *txn) noteControl(statements []wire.Statement) {
	for _, s := range statements {
		t.sentControl = t.sentControl || sqlwords.ControlsTransaction(s.SQL)
	}
}

// note notes what the results of ahead show: that the transaction has begun with it, or that one
// of its statements was a COMMIT.
func (t *txn) note(ahead *sentBatches, results []wire.Result) {
	for _, result := range results {
		if tag := result.Tag.String(); tag == "COMMIT" || tag == "PREPARE TRANSACTION" {
			t.committed = true
		}
	}
	if ahead.head == 0 {
		return
	}
	t.begun = len(results) >= ahead.head
	if len(results) > 1 && len(results[1].Row) == 1 {
		var pid string
		t.xid, pid, _ = strings.Cut(results[1].Row[0], " ")
		t.noteBackend(pid)
	}
}
