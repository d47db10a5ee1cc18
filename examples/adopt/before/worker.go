package before

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Jobs is the table of jobs.
const Jobs = `create table job (id bigint primary key, payload text not null, status text not null default 'open',
	claimed_by text, claimed_until timestamptz, attempts int not null default 0)`

// ErrLost says that another worker has the job.
var ErrLost = errors.New("the claim is lost")

// Job is a row of the table.
type Job struct {
	ID      int64
	Payload string
}

// Do works on a job, and returns what writes its result.
type Do func(ctx context.Context, job Job) (write func(ctx context.Context, tx pgx.Tx) error, err error)

// Worker works off the table, one job at a time.
type Worker struct {
	Pool *pgxpool.Pool
	Name string
	TTL  time.Duration
}

// Run does jobs until ctx ends, and then the one that it has.
func (w *Worker) Run(ctx context.Context, do Do) error {
	for work := context.WithoutCancel(ctx); ctx.Err() == nil; {
		rows, _ := w.Pool.Query(work, `update job set claimed_by = $1, claimed_until = now() + $2, attempts = attempts + 1
			where id = (select id from job where status = 'open' and attempts < 5 and (claimed_until is null or claimed_until < now())
				order by id limit 1 for update skip locked) returning id, payload`, w.Name, w.TTL)
		job, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[Job])
		if errors.Is(err, pgx.ErrNoRows) {
			time.Sleep(time.Second)
			continue
		}
		if err != nil {
			return err
		}
		if err := w.work(work, job, do); err != nil {
			_, _ = w.Pool.Exec(work, "update job set status = 'open', claimed_until = null where id = $1", job.ID)
		}
	}
	return nil
}

func (w *Worker) work(ctx context.Context, job Job, do Do) error {
	write, err := do(ctx, job)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, w.Pool, func(tx pgx.Tx) error {
		var mine bool
		check := tx.QueryRow(ctx, "select claimed_by = $2 and claimed_until > now() from job where id = $1", job.ID, w.Name)
		if err := check.Scan(&mine); err != nil || !mine {
			return cmp.Or(err, ErrLost)
		}
		err := write(ctx, tx)
		if err == nil {
			_, err = tx.Exec(ctx, "update job set status = 'done' where id = $1", job.ID)
		}
		return err
	})
}

// Heartbeat is called by a Do that takes long, before TTL is over.
func (w *Worker) Heartbeat(ctx context.Context, job Job) error {
	_, err := w.Pool.Exec(ctx, "update job set claimed_until = now() + $2 where id = $1", job.ID, w.TTL)
	return err
}
