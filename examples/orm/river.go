package orm

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// Reorder is a job that follows from what a sale has seen, and so is for nothing once another process has taken
// over the product.
type Reorder struct {
	SKU   string      `json:"sku"`
	Grant fence.Grant `json:"grant"`
}

// Kind names the jobs.
func (Reorder) Kind() string { return "reorder" }

// SellRiver is a sale that inserts a job in its transaction: river's table is the outbox. It is Retryable because a
// job that was worked since the last sale has written under the grant that this process still has: that is
// guard.ErrOvertaken once, and the second run knows of it.
func SellRiver(ctx context.Context, g fencekit.Runner, client *river.Client[pgx.Tx], sku string, n int64) error {
	return guard.Do(ctx, g, "sku/"+sku, func(ctx context.Context, tx pgx.Tx) error {
		var left int64
		err := tx.QueryRow(ctx, "update stock set qty = qty - $2 where sku = $1 and qty >= $2 returning qty", sku, n).Scan(&left)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrSoldOut
		}
		if err != nil {
			return err
		}
		_, err = client.InsertTx(ctx, tx, Reorder{SKU: sku, Grant: guard.Grants(ctx)[0]}, nil)
		return err
	}, guard.Retryable())
}

// Reorderer works Reorder jobs under the grant of the sale.
type Reorderer struct {
	river.WorkerDefaults[Reorder]
	Guard *guard.Guard[pgx.Tx]
}

// Work writes and completes the job in one transaction, so that it takes effect once however often river calls. A
// stale job is cancelled: its grant stays stale.
func (r *Reorderer) Work(ctx context.Context, job *river.Job[Reorder]) error {
	err := guard.Do(ctx, r.Guard.UnderGrant(job.Args.Grant), "sku/"+job.Args.SKU, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into reorder (sku) values ($1)", job.Args.SKU); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	if errors.Is(err, guard.ErrStaleToken) {
		return river.JobCancel(err)
	}
	return err
}
