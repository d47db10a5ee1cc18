package jobs_test

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/jobs"
)

type invoice struct {
	ID     int64
	Amount int
}

// invoices are due, and have been tried less than 20 times.
var invoices = jobs.Queue[invoice]{
	Name: "invoice",
	Next: `select id, amount from invoice
		where status = 'open' and not_before <= now() and tries < 20 and fence.free('invoice/' || id)
		order by priority desc, id for update skip locked`,
	Key:     func(i invoice) string { return strconv.FormatInt(i.ID, 10) },
	Workers: 50,
	// Counted even if the process dies.
	Taken: func(ctx context.Context, tx pgx.Tx, rows []invoice) error {
		ids := make([]int64, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		_, err := tx.Exec(ctx, "update invoice set tries = tries + 1, not_before = now() + tries * interval '10 seconds' where id = any($1)", ids)
		return err
	},
}

// bank charges once for each id, and rejects a grant that is lower than one that it has seen.
type bank func(ctx context.Context, id int64, amount int, grant fence.Grant) error

func charge(charge bank) func(ctx context.Context, job jobs.Job[invoice]) error {
	return func(ctx context.Context, job jobs.Job[invoice]) error {
		if err := charge(ctx, job.Row.ID, job.Row.Amount, guard.Grants(ctx)[0]); err != nil {
			return err
		}
		return guard.Do(ctx, job, job.Resource, func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "update invoice set status = 'paid' where id = $1", job.Row.ID)
			return err
		})
	}
}

// Invoices are charged by whichever process is free. One that was paused, and whose invoice another process has charged
// meanwhile, can't mark it.
func ExampleWork() {
	pool, done := shop()
	defer done()
	g, err := fencekit.New(pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	err = jobs.Work(ctx, g, invoices, charge(func(_ context.Context, id int64, amount int, grant fence.Grant) error {
		fmt.Println("charges", amount, "under a grant of", grant.Resource)
		cancel() // the example has one invoice: Work ends once that is done
		return nil
	}))
	fmt.Println(err)
	var status string
	if err := pool.QueryRow(context.Background(), "select status from invoice").Scan(&status); err != nil {
		log.Fatal(err)
	}
	fmt.Println(status)
	// Output:
	// charges 120 under a grant of invoice/7
	// <nil>
	// paid
}
