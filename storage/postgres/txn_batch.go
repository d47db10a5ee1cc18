package postgres

import (
	"context"

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
	ahead, err := t.takeQueued(ctx)
	if err != nil {
		return t.fail(ctx, storage.StageRun, err)
	}
	if len(ahead.sent) == 0 {
		return nil
	}
	results, err := wire.ExecAll(ctx, t.conn.Conn().PgConn(), ahead.sent)
	if err != nil {
		stage, err := ahead.explain(err)
		return t.fail(ctx, stage, err)
	}
	ahead.read(results)
	return nil
}

// takeQueued empties the queue and returns its statements as they are to be sent.
func (t *txn) takeQueued(ctx context.Context) (*sentBatches, error) {
	queue := t.queue
	t.queue = batchQueue{}
	return queue.encode(ctx, t.conn.Conn(), schemaIdentifier(t.store.cfg.Schema), nil, false)
}
