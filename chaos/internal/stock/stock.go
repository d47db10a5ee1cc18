// Package stock is the built-in workload: it sells what is in stock. Each of its orders
// records what it saw and wrote, so that checks find what was lost or sold twice.
package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/guard"
)

// Stock is the built-in workload: it sells what is in stock, by every call that
// Fencekit has. It reads, decides, and writes what it decided whatever the row holds by
// then: so a late write, or one that decided on an old value, shows in the data.
type Stock struct {
	// Initial is the initial stock of each resource; default plenty.
	Initial int
	// Lots is how many lots each worker has; default none.
	Lots int
}

// stockSize is plenty.
const stockSize = 1_000_000

// QuickResources are sold by quick operations, and SlowResources by slow ones. An operation
// on both locks the slow resources first, in the order of names, and so holds no quick
// resource while it waits.
var (
	QuickResources = []string{"sku/1", "sku/2", "sku/3"}
	SlowResources  = []string{"bulk/1", "bulk/2", "bulk/3"}
)

// lotOwners is how many workers have lots of their own.
const lotOwners = 3

// LotsOf are a worker's lots: resources that it sells in batches, all at once.
func LotsOf(worker, number int) (lots []string) {
	for i := range number {
		lots = append(lots, fmt.Sprintf("lot/%d/%d", worker%lotOwners, i))
	}
	return lots
}

// stockSchema has no unique constraint on orders, so that an operation can take effect twice.
// Remarks are rows that are written without a fence.
const stockSchema = `
create table stock  (resource text primary key, initial int not null, available int not null);
create table orders (id bigint generated always as identity primary key, op text not null, resource text not null,
                     quantity int not null, seen int not null, token bigint not null, process text not null);
create table remarks (op text not null);`

// Name implements Workload.
func (s Stock) Name() string { return "stock" }

// Resources implements Workload.
func (s Stock) Resources() []string {
	all := slices.Concat(QuickResources, SlowResources)
	for owner := range lotOwners {
		all = append(all, LotsOf(owner, s.Lots)...)
	}
	return all
}

// SlowResources implements workload.Slow.
func (s Stock) SlowResources() []string { return SlowResources }

// Prepare implements Workload.
func (s Stock) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	if _, err := db.Exec(ctx, stockSchema); err != nil {
		return err
	}
	initial := s.Initial
	if initial == 0 {
		initial = stockSize
	}
	_, err := db.Exec(ctx, "insert into stock select name, $2, $2 from unnest($1::text[]) as name", s.Resources(), initial)
	return err
}

// order is what an operation is to do.
type order struct {
	action    string
	resources []string
	quantity  int
	retryable bool
	again     bool // an operation with a Once key is called a second time
}

// order returns what an operation decides before it reads anything: always the same for the
// same op.
func (s Stock) order(op workload.Op) order {
	random := op.Rand()
	o := order{action: "do", resources: []string{op.Resource}, quantity: 1 + random.IntN(3), retryable: random.IntN(2) == 0}
	switch n := random.IntN(10); {
	case n < 2:
		o.action = "hold"
	case n < 4:
		o.action = "once"
	case n < 5:
		o.action = "all"
	}
	switch {
	case op.Think.Lasts > workload.LongestInTx:
		o.action = "hold"
	case op.Think.Lasts > 0 && o.action == "all":
		o.action = "do" // nothing else has to wait
	}
	o.action = cmp.Or(op.Action, o.action)
	if o.action == "all" {
		for _, r := range QuickResources {
			if r != op.Resource && random.IntN(2) == 0 {
				o.resources = append(o.resources, r)
			}
		}
	}
	o.again = random.IntN(2) == 0
	return o
}

// Describe implements Described.
func (s Stock) Describe(op workload.Op) (action string, resources []string) {
	o := s.order(op)
	return o.action, o.resources
}

// Operate implements Workload.
func (s Stock) Operate(ctx context.Context, env *workload.Env, op workload.Op) error {
	o := s.order(op)
	opts := []guard.ValueOption{guard.OpID(op.ID)}
	if o.retryable {
		opts = append(opts, guard.Retryable())
	}
	switch o.action {
	case "do", "all":
		return env.Do(ctx, o.resources, s.sell(env, op, o), opts...)
	case "hold":
		return s.hold(ctx, env, op, o)
	case ActionBatch:
		return env.Batch(ctx, op.Resource, s.batch(env, op, o), guard.OpID(op.ID))
	case "once":
		return s.once(ctx, env, op, o, opts)
	case ActionCommit, ActionReopen, ActionHoldCommit, ActionHeedless, ActionSavepoint, ActionPanic, ActionGoexit:
		return s.misuse(ctx, env, op, o)
	}
	return fmt.Errorf("%w: %s has no action %q", workload.ErrConfig, s.Name(), o.action)
}

// once sells with a Once key and, some of the time, calls again after it has succeeded, as a
// client does that has lost the answer: that must change nothing. A control has no keys.
func (s Stock) once(ctx context.Context, env *workload.Env, op workload.Op, o order, opts []guard.ValueOption) error {
	opts = append(opts, guard.Once(op.ID, []byte(op.ID)))
	do := func() error { return env.Do(ctx, []string{op.Resource}, s.sell(env, op, o), opts...) }
	err := untilKnown(ctx, env, do)
	if err != nil || env.Guard == nil || !o.again {
		return err
	}
	if err := do(); errors.Is(err, guard.ErrKeyReused) {
		return err // the same request must not be taken for another
	}
	return nil // the first call has succeeded, whatever the error of the second
}

// untilKnown calls again, with the same key, while the outcome is unknown. If a later attempt
// fails, the outcome of the earlier one is still unknown.
func untilKnown(ctx context.Context, env *workload.Env, do func() error) error {
	var doubt error
	for {
		err := do()
		switch {
		case err != nil && env.Guard != nil && errors.Is(err, guard.ErrUnknownOutcome):
			doubt = err
		case err != nil && doubt != nil:
			return doubt
		default:
			return err
		}
		if ctx.Err() != nil {
			return doubt
		}
	}
}

// sell reads, decides and writes in one transaction.
func (s Stock) sell(env *workload.Env, op workload.Op, o order) workload.Work {
	return func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
		seen := make([]int, len(o.resources))
		for i, r := range o.resources {
			var err error
			if seen[i], err = read(ctx, tx, r); err != nil {
				return err
			}
		}
		env.Point(workload.PointRead)
		ctx, end := op.Think.Pass(ctx)
		defer end()
		for i, r := range o.resources {
			if err := write(ctx, tx, env, op, r, o.quantity, seen[i], tokens[r]); err != nil {
				return err
			}
		}
		return nil
	}
}

// ActionBatch sells by statements that are known beforehand. Only loads that ask for it do so.
const ActionBatch = "batch"

// batch sells in statements that decide nothing. The order's row has what the stock was before
// it, and a token of the moment of its statement: if a later claim comes before the commit, that
// shows.
func (s Stock) batch(env *workload.Env, op workload.Op, o order) workload.Batch {
	return func(token string) workload.Statements {
		return workload.Statements{
			{SQL: "update stock set available = available - $2 where resource = $1 and available >= $2", Args: []any{op.Resource, o.quantity}},
			{SQL: "insert into orders (op, resource, quantity, seen, token, process) select $1, s.resource, $3, s.available + $3, " + token + ", $4 from stock s where s.resource = $2",
				Args: []any{op.ID, op.Resource, o.quantity, env.Process}},
		}
	}
}

// hold reads in one transaction, and writes in a later one.
func (s Stock) hold(ctx context.Context, env *workload.Env, op workload.Op, o order) error {
	return env.Hold(ctx, op.Resource, func(ctx context.Context, do workload.Transact) error {
		var seen int
		err := do(ctx, func(ctx context.Context, tx pgx.Tx, _ map[string]int64) (err error) {
			seen, err = read(ctx, tx, op.Resource)
			return err
		})
		if err != nil {
			return notReadError{err}
		}
		env.Point(workload.PointRead)
		ctx, end := op.Think.Pass(ctx)
		defer end()
		return do(ctx, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
			return write(ctx, tx, env, op, op.Resource, o.quantity, seen, tokens[op.Resource])
		}, guard.OpID(op.ID))
	})
}

func read(ctx context.Context, tx pgx.Tx, resource string) (seen int, err error) {
	err = tx.QueryRow(ctx, "select available from stock where resource = $1", resource).Scan(&seen)
	return seen, err
}

func write(ctx context.Context, tx pgx.Tx, env *workload.Env, op workload.Op, resource string, quantity, seen int, token int64) error {
	if seen < quantity {
		return soldOutError{resource}
	}
	if _, err := tx.Exec(ctx, "update stock set available = $2 where resource = $1", resource, seen-quantity); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "insert into orders (op, resource, quantity, seen, token, process) values ($1, $2, $3, $4, $5, $6)",
		op.ID, resource, quantity, seen, token, env.Process)
	return err
}

// Check implements Workload. It compares sums alone; package check checks the rest.
func (s Stock) Check(ctx context.Context, db *pgxpool.Pool) error {
	rows, err := db.Query(ctx, `
		select resource, initial - available, coalesce((select sum(quantity) from orders o where o.resource = s.resource), 0)
		from stock s order by resource`)
	if err != nil {
		return err
	}
	var errs []error
	var resource string
	var taken, sold int
	_, err = pgx.ForEachRow(rows, []any{&resource, &taken, &sold}, func() error {
		if taken != sold {
			errs = append(errs, fmt.Errorf("%s: %d were sold, and the stock fell by %d", resource, sold, taken))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// soldOutError says that too little is in stock.
type soldOutError struct{ resource string }

func (e soldOutError) Error() string { return e.resource + " is sold out" }

// Class implements Classer.
func (soldOutError) Class() string { return history.ClassSoldOut }

// notReadError says that nothing was written because reading failed. The reading
// transaction's outcome may be unknown, but the operation's isn't; so the error is not
// wrapped.
type notReadError struct{ reading error }

func (e notReadError) Error() string { return "nothing was sold: reading: " + e.reading.Error() }

// Class implements Classer.
func (e notReadError) Class() string { return workload.ClassOf(e.reading) }
