package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Stock is the built-in workload. It writes what it decided whatever the row holds by then: so a late write, or
// one that decided on an old value, shows in the data.
type Stock struct {
	Initial int // of each resource; default plenty
}

const plenty = 1_000_000

// Slow operations think between reading and writing: a holder that loses its lock meanwhile writes after its
// successor has read. An operation on both locks the slow resources first, in the order of names, and so holds no
// quick one while it waits.
var (
	quickSKUs = []string{"sku/1", "sku/2", "sku/3"}
	slowSKUs  = []string{"bulk/1", "bulk/2", "bulk/3"}
)

func (Stock) Name() string { return "stock" }

func (Stock) Resources() []string { return slices.Concat(quickSKUs, slowSKUs) }

// Prepare makes orders without a unique constraint, so that an operation can take effect twice.
func (s Stock) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, `
		create schema chaos;
		create table chaos.stock  (resource text primary key, initial int not null, available int not null);
		create table chaos.orders (id bigint generated always as identity primary key, op text not null, resource text not null,
		                     quantity int not null, seen int not null, token bigint not null, process text not null)`)
	if err != nil {
		return err
	}
	_, err = db.Exec(ctx, "insert into chaos.stock select name, $2, $2 from unnest($1::text[]) as name", s.Resources(), cmp.Or(s.Initial, plenty))
	return err
}

// Actions that operations do only if they are asked to.
const (
	ActionBatch    = "batch"    // it sells by statements that are known beforehand; under a control as "do" does
	ActionHeedless = "heedless" // it sells under a lease that has claimed before, and ignores the end of its context
)

type order struct {
	action    string
	resources []string
	quantity  int
	retryable bool
	again     bool // an operation with a Once key is called a second time
}

// order is what an operation decides before it reads anything.
func (s Stock) order(op Op) order {
	random := op.Rand()
	o := order{action: "do", resources: []string{op.Resource}, quantity: 1 + random.IntN(3), retryable: random.IntN(2) == 0}
	switch n := random.IntN(10); {
	case op.think.lasts > longestInTx, n < 2:
		o.action = "hold"
	case n < 4:
		o.action = "once"
	case n < 5 && op.think.lasts == 0: // else other resources would have to wait
		o.action = "all"
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
	case "hold":
		return s.hold(ctx, env, op, o)
	case "once":
		return s.once(ctx, env, op, o, opts)
	case ActionBatch:
		if env.Guard != nil {
			return guard.Exec(ctx, env.Guard, op.Resource, s.batch(env, op, o), guard.OpID(op.ID))
		}
	case ActionHeedless:
		return env.Hold(ctx, op.Resource, func(ctx context.Context, do Transact) error {
			return do(context.WithoutCancel(ctx), func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
				return s.sell(env, op, o)(context.WithoutCancel(ctx), tx, tokens)
			}, guard.OpID(op.ID))
		})
	}
	return env.Do(ctx, o.resources, s.sell(env, op, o), opts...)
}

// once sells with a key and, some of the time, calls again after it has succeeded, which must change nothing.
func (s Stock) once(ctx context.Context, env *Env, op Op, o order, opts []guard.ValueOption) error {
	opts = append(opts, guard.Once(op.ID, []byte(op.ID)))
	do := func() error { return env.Do(ctx, []string{op.Resource}, s.sell(env, op, o), opts...) }
	if env.Guard == nil {
		return do()
	}
	err := untilKnown(ctx, do)
	if err != nil || !o.again {
		return err
	}
	if err := do(); errors.Is(err, guard.ErrKeyReused) {
		return err // the same request must not be taken for another
	}
	return nil // the first call has succeeded, whatever the error of the second
}

// untilKnown calls again while the outcome is unknown. If a later attempt fails, that of the earlier one is still
// unknown.
func untilKnown(ctx context.Context, do func() error) (doubt error) {
	for {
		err := do()
		if err == nil || !errors.Is(err, guard.ErrUnknownOutcome) {
			if err != nil && doubt != nil {
				return doubt
			}
			return err
		}
		if doubt = err; ctx.Err() != nil {
			return doubt
		}
	}
}

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
		ctx, end := op.think.pass(ctx)
		defer end()
		for i, r := range o.resources {
			if err := write(ctx, tx, env, op, r, o.quantity, seen[i], tokens[r]); err != nil {
				return err
			}
		}
		return nil
	}
}

// batch decides nothing. An order's token is read by its own statement: if a later claim comes before the commit,
// that shows. A transaction that makes its own claim writes that in its seal, and holds no lock of a begin check: its
// token, written as -1, is that of its entry.
func (s Stock) batch(env *Env, op Op, o order) *postgres.Batch {
	b := &postgres.Batch{}
	b.Exec("update chaos.stock set available = available - $2 where resource = $1 and available >= $2", op.Resource, o.quantity).MustAffect(1)
	b.Exec(`insert into chaos.orders (op, resource, quantity, seen, token, process)
		select $1, s.resource, $3, s.available + $3, coalesce((
			select case when exists (select from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.objsubid = 2
			                            and l.mode = 'ShareLock' and l.classid::bigint = f.id) then f.token else -1 end
			from fence.resource f where f.name = s.resource), 0), $4
		from chaos.stock s where s.resource = $2`, op.ID, op.Resource, o.quantity, env.Process).MustAffect(1)
	return b
}

func (s Stock) hold(ctx context.Context, env *Env, op Op, o order) error {
	return env.Hold(ctx, op.Resource, func(ctx context.Context, do Transact) error {
		var seen int
		err := do(ctx, func(ctx context.Context, tx pgx.Tx, _ map[string]int64) (err error) {
			seen, err = read(ctx, tx, op.Resource)
			return err
		})
		if err != nil {
			// The reading transaction's outcome may be unknown; the operation's isn't.
			return fmt.Errorf("nothing was sold: reading: %v", err)
		}
		env.Point(PointRead)
		ctx, end := op.think.pass(ctx)
		defer end()
		return do(ctx, func(ctx context.Context, tx pgx.Tx, tokens map[string]int64) error {
			return write(ctx, tx, env, op, op.Resource, o.quantity, seen, tokens[op.Resource])
		}, guard.OpID(op.ID))
	})
}

func read(ctx context.Context, tx pgx.Tx, resource string) (seen int, err error) {
	err = tx.QueryRow(ctx, "select available from chaos.stock where resource = $1", resource).Scan(&seen)
	return seen, err
}

func write(ctx context.Context, tx pgx.Tx, env *Env, op Op, resource string, quantity, seen int, token int64) error {
	if seen < quantity {
		return fmt.Errorf("%w: %s", errSoldOut, resource)
	}
	if _, err := tx.Exec(ctx, "update chaos.stock set available = $2 where resource = $1", resource, seen-quantity); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "insert into chaos.orders (op, resource, quantity, seen, token, process) values ($1, $2, $3, $4, $5, $6)",
		op.ID, resource, quantity, seen, token, env.Process)
	return err
}

var errSoldOut = errors.New("sold out")

// Check compares sums alone; package check checks the rest.
func (s Stock) Check(ctx context.Context, db *pgxpool.Pool) error {
	var wrong []string
	err := db.QueryRow(ctx, `
		select array_agg(resource order by resource) from chaos.stock s
		where initial - available <> (select coalesce(sum(quantity), 0) from chaos.orders o where o.resource = s.resource)`).Scan(&wrong)
	if err == nil && len(wrong) > 0 {
		err = fmt.Errorf("the stock fell by something else than was sold: %s", strings.Join(wrong, ", "))
	}
	return err
}

// longestInTx is below the timeout of idle transactions (storeBounds).
const longestInTx = TTL / 2

type thinking struct {
	lasts time.Duration   // 0: the operation isn't slow
	deaf  bool            // it ignores the end of its context, as a calculation does
	over  <-chan struct{} // closed at the end of the load, which ends the thinking too
}

// thinkingOf has the first operation on the worker's own resource go on after an early fault has taken its lock,
// so that only the fence can reject it.
func thinkingOf(n int, own bool, random *rand.Rand, over <-chan struct{}) thinking {
	t := thinking{deaf: random.IntN(2) == 0, over: over}
	switch {
	case n == 0 && own:
		t.lasts, t.deaf = Between(random, TTL+TTL/2, 2*TTL), true
	case own || random.IntN(2) == 0:
		t.lasts = Pick(random, Between(random, TTL/8, longestInTx), Between(random, longestInTx, 2*TTL))
	}
	return t
}

// pass waits. A deaf operation goes on as if it still had its lock: the fence has to reject it.
func (t thinking) pass(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.lasts == 0 {
		return ctx, func() {}
	}
	ended := ctx.Done()
	if t.deaf {
		ended = nil
	}
	select {
	case <-time.After(t.lasts):
	case <-ended:
	case <-t.over:
	}
	if deadline, ok := ctx.Deadline(); ok && t.deaf {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return ctx, func() {}
}
