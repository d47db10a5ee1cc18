package after

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/jobs"
)

// Job is a row of the table.
type Job struct {
	ID      int64
	Payload string
}

// Do works on a job, and returns what writes its result.
type Do func(ctx context.Context, job Job) (write func(ctx context.Context, tx pgx.Tx) error, err error)

// Queue is the table of jobs, for one at a time.
var Queue = jobs.Queue[Job]{
	Name:    "job",
	Next:    "select id, payload from job where status = 'open' and attempts < 5 and fence.free('job/' || id) order by id for update skip locked",
	Key:     func(j Job) string { return strconv.FormatInt(j.ID, 10) },
	Workers: 1,
	Taken: func(ctx context.Context, tx pgx.Tx, rows []Job) error {
		_, err := tx.Exec(ctx, "update job set attempts = attempts + 1 where id = $1", rows[0].ID)
		return err
	},
}

// Worker works off the table, one job at a time.
type Worker struct {
	Guard *fencekit.Client
	Queue jobs.Queue[Job]
}

// Run does jobs until ctx ends, and then the one that it has.
func (w *Worker) Run(ctx context.Context, do Do) error {
	return jobs.Work(ctx, w.Guard, w.Queue, func(ctx context.Context, job jobs.Job[Job]) error {
		write, err := do(ctx, job.Row)
		if err != nil {
			return err
		}
		return guard.Do(ctx, job, job.Resource, func(ctx context.Context, tx pgx.Tx) error {
			err := write(ctx, tx)
			if err == nil {
				_, err = tx.Exec(ctx, "update job set status = 'done' where id = $1", job.Row.ID)
			}
			return err
		})
	})
}
