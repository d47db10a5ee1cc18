// Package worker works jobs of a queue in the database, each under the grant that it came with, and reports once a day.
package worker

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardsql"
	"github.com/fencekit/fencekit/storage/postgres"
)

type job struct {
	ID       int64
	Account  string
	Args     []byte
	Attempts int
	Grant    fence.Grant
}

type worker struct {
	pool  *pgxpool.Pool
	guard *fencekit.Client
	bank  func(ctx context.Context, account string, cents int, grants []fence.Grant) (string, error)
}

func (w *worker) run(ctx context.Context) error {
	for {
		j, err := w.next(ctx)
		if errors.Is(err, pgx.ErrNoRows) {
			select {
			case <-time.After(time.Second):
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err == nil {
			err = w.work(ctx, j)
		}
		if err != nil && !guard.SafeToStartOver(err) {
			if err := w.fail(context.WithoutCancel(ctx), j, err); err != nil {
				return err
			}
		}
	}
}

// next reads a candidate, outside of any lock.
func (w *worker) next(ctx context.Context) (j job, err error) {
	var grant []byte
	err = w.pool.QueryRow(ctx, "select id, account, args, attempts, grants from job where done is null order by id limit 1").
		Scan(&j.ID, &j.Account, &j.Args, &j.Attempts, &grant)
	if err != nil {
		return job{}, err
	}
	return j, json.Unmarshal(grant, &j.Grant)
}

// work completes the job in the transaction that does it.
func (w *worker) work(ctx context.Context, j job) error {
	var args struct{ Cents int }
	if err := json.Unmarshal(j.Args, &args); err != nil {
		return err
	}
	return guard.Do(ctx, w.guard.UnderGrant(j.Grant), "account/"+j.Account, func(ctx context.Context, tx pgx.Tx) error {
		var balance int
		if err := tx.QueryRow(ctx, "select cents from account where name = $1", j.Account).Scan(&balance); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update account set cents = $2 where name = $1", j.Account, balance+args.Cents); err != nil {
			return err
		}
		return complete(ctx, tx, j)
	})
}

func complete(ctx context.Context, tx pgx.Tx, j job) error {
	tag, err := tx.Exec(ctx, "update job set done = now(), attempts = attempts + 1 where id = $1 and done is null", j.ID)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("job %d is done", j.ID)
	}
	return err
}

func (w *worker) fail(ctx context.Context, j job, cause error) error {
	_, err := w.pool.Exec(ctx, "update job set attempts = $2, failed = $3 where id = $1", j.ID, j.Attempts+1, cause.Error())
	return err
}

// payOut reserves, pays at the bank, and settles: a Hold, with the pool in between.
func (w *worker) payOut(ctx context.Context, account string) error {
	resource := "account/" + account
	return guard.Hold(ctx, w.guard, resource, func(ctx context.Context, h fencekit.Runner) error {
		var iban string
		if err := w.pool.QueryRow(ctx, "select iban from customer where account = $1", account).Scan(&iban); err != nil {
			return err
		}
		cents, err := guard.Value(ctx, h, resource, func(ctx context.Context, tx pgx.Tx) (cents int, err error) {
			err = tx.QueryRow(ctx, "select cents from account where name = $1", account).Scan(&cents)
			return cents, err
		})
		if err != nil {
			return err
		}
		paid := make(chan error, 1)
		var receipt string
		go func() {
			var err error
			receipt, err = w.bank(ctx, iban, cents, guard.Grants(ctx))
			paid <- err
		}()
		if err := <-paid; err != nil {
			return err
		}
		return guard.Do(ctx, h, resource, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update account set cents = $2, receipt = $3 where name = $1", account, 0, receipt)
			return err
		})
	}, guard.Retryable())
}

// transfer is one round trip.
func (w *worker) transfer(ctx context.Context, from, to string, cents int) error {
	var b postgres.Batch
	b.Exec("update account set cents = cents - $1 where name = $2 and cents >= $1", cents, from).MustAffect(1)
	b.Exec("update account set cents = cents + $1 where name = $2", cents, to).MustAffect(1)
	return guard.Exec(ctx, w.guard, []string{"account/" + from, "account/" + to}, &b)
}

func (w *worker) report(ctx context.Context, day time.Time) (total int, err error) {
	err = guard.Do(ctx, w.guard, "report", guardsql.With(func(ctx context.Context, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := tx.QueryRowContext(ctx, "select sum(cents) from account").Scan(&total); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "insert into report (day, cents) values ($1, $2)", day, total); err != nil {
			return err
		}
		return tx.Commit()
	}), guard.OpName("report"))
	return total, err
}
