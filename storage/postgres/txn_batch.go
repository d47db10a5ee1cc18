package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// runBatch queues b. It is sent with the seal, or before the next operation that isn't a
// Batch.
func (t *txn) runBatch(ctx context.Context, b *Batch) error {
	if err := b.validate(); err != nil {
		return t.fail(ctx, storage.StageRun, err)
	}
	if t.queue.add(b) {
		return nil
	}
	if err := t.sendQueued(ctx); err != nil {
		return err
	}
	t.queue.add(b)
	return nil
}

// sendQueued sends the queued batches without the seal.
func (t *txn) sendQueued(ctx context.Context) error {
	if len(t.queue.batches) == 0 {
		return nil
	}
	ahead, err := t.encodeQueued(ctx)
	if err != nil {
		return t.fail(ctx, storage.StageRun, err)
	}
	t.queue = batchQueue{}
	results, err := wire.ExecAll(ctx, t.conn.Conn().PgConn(), ahead.sent)
	t.note(ahead, results)
	if err != nil {
		stage, err := ahead.explain(err)
		return t.fail(ctx, stage, err)
	}
	ahead.read(results)
	return nil
}

// encodeQueued returns the queued statements as they are to be sent, behind BEGIN and the
// begin check if the transaction has not begun. Those that pgx would prepare are prepared
// before BEGIN: one that fails there must not end the transaction. No limit of the server's
// is in force then, so the wait for a lock is bounded here.
func (t *txn) encodeQueued(ctx context.Context) (*sentBatches, error) {
	conn, schema := t.conn.Conn(), schemaIdentifier(t.store.cfg.Schema)
	if t.begun {
		return t.queue.encode(ctx, conn, schema, nil, false)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.store.cfg.LockTimeout, errPrepare)
	defer cancel()
	mayPrepare := t.store.mode == pgx.QueryExecModeCacheStatement
	head, err := t.encodeHead(ctx, mayPrepare)
	if err != nil {
		return nil, err
	}
	ahead, err := t.queue.encode(ctx, conn, schema, head, mayPrepare)
	if err != nil && context.Cause(ctx) == errPrepare {
		err = &TransientError{fmt.Errorf("%w of %v (postgres.Config.LockTimeout): %w", errPrepare, t.store.cfg.LockTimeout, err)}
	}
	return ahead, err
}

var errPrepare = errors.New("postgres: a statement was not prepared within the limit")

// encodeHead returns BEGIN and the begin check, which leaves its answer in settings, for the
// seal and leaveSQL: they have to be sent before the answer is known here.
func (t *txn) encodeHead(ctx context.Context, mayPrepare bool) ([]wire.Statement, error) {
	resources, epochs, tokens := claimArrays(t.claims)
	head := []Statement{{sql: t.store.sql.begin}, {sql: t.store.sql.aloneBeginCheck, args: []any{resources, epochs, tokens}}}
	encoded := make([]wire.Statement, len(head), len(head)+t.queue.statements)
	for i := range head {
		var err error
		if encoded[i], err = head[i].encode(ctx, t.conn.Conn(), "", mayPrepare); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// note notes what the results of ahead show: that the transaction has begun with it, and
// that one of its statements was a COMMIT.
func (t *txn) note(ahead *sentBatches, results []wire.Result) {
	for _, result := range results {
		if tag := result.Tag.String(); tag == "COMMIT" || tag == "PREPARE TRANSACTION" {
			t.committed = true
		}
	}
	if ahead.head == 0 {
		return
	}
	t.begun, t.state = len(results) >= ahead.head, ""
	if len(results) > 1 && len(results[1].Row) == 2 {
		t.state, t.xid = results[1].Row[0], results[1].Row[1]
	}
}
