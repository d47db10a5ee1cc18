// Package stock is the built-in workload: it sells what is in stock. What each of its
// orders saw and wrote is known, so that checkers find what was lost or doubled.
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

// Stock is the built-in workload: it sells what is in stock, in every way that the
// framework has. It reads, decides, and writes what it decided, whatever is there
// by then: whoever writes late, or on something that was read too early, leaves a
// trace.
type Stock struct {
	// Initial is what there is of each resource; default plenty.
	Initial int
}

// stockSize is plenty.
const stockSize = 1_000_000

// QuickResources are what there is to sell, and SlowResources what is sold slowly.
// Who sells some of each locks the latter first, in the order of names, and so keeps
// nobody waiting while it waits itself.
var (
	QuickResources = []string{"sku/1", "sku/2", "sku/3"}
	SlowResources  = []string{"bulk/1", "bulk/2", "bulk/3"}
)

// stockSchema has nothing unique about orders, so that whatever takes effect twice
// shows. Remarks are what code writes that doesn't care for fences.
const stockSchema = `
create table stock  (resource text primary key, initial int not null, available int not null);
create table orders (id bigint generated always as identity primary key, op text not null, resource text not null,
                     quantity int not null, seen int not null, token bigint not null, process text not null);
create table remarks (op text not null);`

// Name implements Workload.
func (s Stock) Name() string { return "stock" }

// Resources implements Workload.
func (s Stock) Resources() []string { return slices.Concat(QuickResources, SlowResources) }

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
	again     bool // what is to take effect once is done a second time
}

// order returns what an operation decides before it has read anything: always the
// same.
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
		return env.DoAll(ctx, o.resources, s.sell(env, op, o), opts...)
	case "hold":
		return s.hold(ctx, env, op, o)
	case "once":
		return s.once(ctx, env, op, o, opts)
	case ActionCommit, ActionReopen, ActionHoldCommit, ActionHeedless, ActionSavepoint, ActionPanic, ActionGoexit:
		return s.misuse(ctx, env, op, o)
	}
	return fmt.Errorf("%w: %s has no action %q", workload.ErrConfig, s.Name(), o.action)
}

// once sells by a key and, some of the time, does so again after it has succeeded, as a
// client does that has lost the answer: that changes nothing. A control knows no keys.
func (s Stock) once(ctx context.Context, env *workload.Env, op workload.Op, o order, opts []guard.ValueOption) error {
	opts = append(opts, guard.Once(op.ID, []byte(op.ID)))
	do := func() error { return env.Do(ctx, op.Resource, s.sell(env, op, o), opts...) }
	err := untilTold(ctx, env, do)
	if err != nil || env.Guard == nil || !o.again {
		return err
	}
	if err := do(); errors.Is(err, guard.ErrOpReuse) {
		return err // the same request is taken for another
	}
	return nil // what kept it from being answered again says nothing of the first time
}

// untilTold asks again, by the same key, when it isn't told what came of it. An attempt
// that fails afterwards says nothing of the one before.
func untilTold(ctx context.Context, env *workload.Env, do func() error) error {
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

// Check implements Workload. What took effect is for the checkers to judge; this is
// the sum alone.
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
			errs = append(errs, fmt.Errorf("%s: %d were sold, %d were taken from stock", resource, sold, taken))
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// soldOutError says that there isn't enough.
type soldOutError struct{ resource string }

func (e soldOutError) Error() string { return e.resource + " is sold out" }

// Class implements Classer.
func (soldOutError) Class() string { return history.ClassSoldOut }

// notReadError says why nothing was written: the reading before it failed. What
// became of that transaction, if it is unknown, says nothing about the operation, so
// its error is not passed on.
type notReadError struct{ reading error }

func (e notReadError) Error() string { return "nothing was sold: reading: " + e.reading.Error() }

// Class implements Classer.
func (e notReadError) Class() string { return workload.ClassOf(e.reading) }
