package beside

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/examples/adopt/after"
	"github.com/fencekit/fencekit/examples/adopt/before"
	"github.com/fencekit/fencekit/jobs"
)

// Queue is after.Queue beside old workers: it passes over what they have claimed, and claims its rows for longer than
// MaxRun, so that they pass over those. Among its like the lease decides, which ends with the process.
func Queue() jobs.Queue[after.Job] {
	q := after.Queue
	q.Next = `select id, payload from job where status = 'open' and attempts < 5 and fence.free('job/' || id)
		and (claimed_until is null or claimed_until < now() or claimed_by = 'jobs') order by id for update skip locked`
	q.Taken = func(ctx context.Context, tx pgx.Tx, rows []after.Job) error {
		_, err := tx.Exec(ctx, `update job set attempts = attempts + 1, claimed_by = 'jobs', claimed_until = now() + interval '20 minutes'
			where id = $1`, rows[0].ID)
		return err
	}
	return q
}

// Do writes the result of do only if no old worker has claimed the row, and keeps them from it until COMMIT. That none of
// its like has claimed it the fence sees to.
func Do(do after.Do) after.Do {
	return func(ctx context.Context, job after.Job) (func(context.Context, pgx.Tx) error, error) {
		write, err := do(ctx, job)
		return func(ctx context.Context, tx pgx.Tx) error {
			row, err := tx.Exec(ctx, "select from job where id = $1 and claimed_by = 'jobs' for no key update", job.ID)
			if err != nil || row.RowsAffected() == 0 {
				return cmp.Or(err, before.ErrLost)
			}
			return write(ctx, tx)
		}, err
	}
}
