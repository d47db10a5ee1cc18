package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/guard"
)

// Stock is the built-in workload: it sells what is in stock, by every call that
// Fencekit has. It reads, decides, and writes what it decided whatever the row holds by
// then: so a late write, or one that decided on an old value, shows in the data. Each order
// records what it saw and wrote, so that checks find what was lost or sold twice.
type Stock struct {
	Initial int // of each resource; default plenty
}

// stockSize is plenty.
const stockSize = 1_000_000

// quickSKUs are sold by quick operations, and slowSKUs by slow ones. An operation
// on both locks the slow resources first, in the order of names, and so holds no quick
// resource while it waits.
var (
	quickSKUs = []string{"sku/1", "sku/2", "sku/3"}
	slowSKUs  = []string{"bulk/1", "bulk/2", "bulk/3"}
)

// stockSchema has no unique constraint on orders, so that an operation can take effect twice.
const stockSchema = `
create table stock  (resource text primary key, initial int not null, available int not null);
create table orders (id bigint generated always as identity primary key, op text not null, resource text not null,
                     quantity int not null, seen int not null, token bigint not null, process text not null);`

// Name implements Workload.
func (s Stock) Name() string { return "stock" }

// Resources implements Workload.
func (Stock) Resources() []string { return slices.Concat(quickSKUs, slowSKUs) }

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
func (s Stock) order(op Op) order {
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
	case op.Think.Lasts > LongestInTx:
		o.action = "hold"
	case op.Think.Lasts > 0 && o.action == "all":
		o.action = "do" // nothing else has to wait
	}
	o.action = cmp.Or(op.Action, o.action)
	if o.action == "all" {
		for _, r := range quickSKUs {
			if r != op.Resource && random.IntN(2) == 0 {
				o.resources = append(o.resources, r)
			}
		}
	}
	o.again = random.IntN(2) == 0
	return o
}

// Describe implements Described.
func (s Stock) Describe(op Op) (action string, resources []string) {
	o := s.order(op)
	return o.action, o.resources
}

// Operate implements Workload.
func (s Stock) Operate(ctx context.Context, env *Env, op Op) error {
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
	case ActionHeedless:
		return env.Do(ctx, o.resources, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
			return s.sell(env, op, o)(context.WithoutCancel(ctx), tx, tokens)
		}, guard.OpID(op.ID))
	}
	return fmt.Errorf("%w: %s has no action %q", ErrConfig, s.Name(), o.action)
}

// once sells with a Once key and, some of the time, calls again after it has succeeded, as a
// client does that has lost the answer: that must change nothing. A control has no keys.
func (s Stock) once(ctx context.Context, env *Env, op Op, o order, opts []guard.ValueOption) error {
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
func untilKnown(ctx context.Context, env *Env, do func() error) error {
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
func (s Stock) sell(env *Env, op Op, o order) Work {
	return func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
		seen := make([]int, len(o.resources))
		for i, r := range o.resources {
			var err error
			if seen[i], err = read(ctx, tx, r); err != nil {
				return err
			}
		}
		env.Point(PointRead)
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

// Actions that operations do only if they are asked to.
const (
	ActionBatch    = "batch"    // it sells by statements that are known beforehand
	ActionHeedless = "heedless" // it sells, and ignores the end of its context
)

// batch sells in statements that decide nothing. The order's row has what the stock was before
// it, and a token of the moment of its statement: if a later claim comes before the commit, that
// shows.
func (s Stock) batch(env *Env, op Op, o order) Batch {
	return func(token string) Statements {
		return Statements{
			{SQL: "update stock set available = available - $2 where resource = $1 and available >= $2", Args: []any{op.Resource, o.quantity}},
			{SQL: "insert into orders (op, resource, quantity, seen, token, process) select $1, s.resource, $3, s.available + $3, " + token + ", $4 from stock s where s.resource = $2",
				Args: []any{op.ID, op.Resource, o.quantity, env.Process}},
		}
	}
}

// hold reads in one transaction, and writes in a later one.
func (s Stock) hold(ctx context.Context, env *Env, op Op, o order) error {
	return env.Hold(ctx, op.Resource, func(ctx context.Context, do Transact) error {
		var seen int
		err := do(ctx, func(ctx context.Context, tx pgx.Tx, _ map[string]int64) (err error) {
			seen, err = read(ctx, tx, op.Resource)
			return err
		})
		if err != nil {
			return notReadError{err}
		}
		env.Point(PointRead)
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

func write(ctx context.Context, tx pgx.Tx, env *Env, op Op, resource string, quantity, seen int, token int64) error {
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
func (e notReadError) Class() string { return ClassOf(e.reading) }

// LongestInTx bounds how long an operation thinks in a transaction. A transaction that is
// idle for longer is ended (StoreBounds).
const LongestInTx = TTL / 2

// SlowResources are those on which operations take time between reading and writing, as
// code does that calculates, or calls another service. A holder that loses its lock
// meanwhile writes after its successor has read, and perhaps written. Each worker has one
// of them as its own, on which it is slow from the beginning; it works on the others' too.
// They are locked before all other resources, so that only operations on slow resources
// wait for a slow operation. Only the built-in workload has some.
func SlowResources(w Workload) []string {
	if _, builtIn := w.(Stock); builtIn {
		return slowSKUs
	}
	return nil
}

// Thinking is what a slow operation does between reading and writing.
type Thinking struct {
	Lasts time.Duration   // 0: the operation isn't slow
	Deaf  bool            // it ignores the end of its context, as a calculation does
	Over  <-chan struct{} // closed at the end of the load, which ends the thinking too
}

// ThinkingOf returns how the n-th operation of a loop on a slow resource thinks. The first
// one on the worker's own resource goes on after an early fault has taken its lock, so that
// only the fence can reject it.
func ThinkingOf(n int, own bool, random *rand.Rand, over <-chan struct{}) Thinking {
	t := Thinking{Deaf: random.IntN(2) == 0, Over: over}
	switch {
	case n == 0 && own:
		t.Lasts, t.Deaf = Between(random, TTL+TTL/2, 2*TTL), true
	case own || random.IntN(2) == 0:
		t.Lasts = Pick(random, Between(random, TTL/8, LongestInTx), Between(random, LongestInTx, 2*TTL))
	}
	return t
}

// Pass waits, and returns the context under which the operation goes on. A deaf operation
// goes on as if it still had its lock: the fence has to reject it.
func (t Thinking) Pass(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.Lasts == 0 {
		return ctx, func() {}
	}
	ended := ctx.Done()
	if t.Deaf {
		ended = nil
	}
	select {
	case <-time.After(t.Lasts):
	case <-ended:
	case <-t.Over:
	}
	if deadline, ok := ctx.Deadline(); ok && t.Deaf {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return ctx, func() {}
}

// QuickResources are those that are not for slow operations.
func QuickResources(w Workload) []string {
	if _, builtIn := w.(Stock); builtIn {
		return quickSKUs
	}
	return w.Resources()
}
