package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// deductWorkload is what the service does, as package chaos runs it: requests to its
// handler, which can be stopped between read and write.
type deductWorkload struct{}

// Products of the workload. The first is sold out in a run. Their lots are of one
// unit, so that whatever was decided on what is no longer so sells one twice.
const (
	scarce = "desk-1"
	plenty = "desk-2"
)

func (deductWorkload) Name() string { return "deductions" }

func (deductWorkload) Resources() []string { return []string{Resource(scarce), Resource(plenty)} }

func (deductWorkload) Prepare(ctx context.Context, db *pgxpool.Pool) error {
	if err := SetUp(ctx, db); err != nil {
		return err
	}
	for product, lots := range map[string]int{scarce: 24, plenty: 3000} {
		_, err := db.Exec(ctx, "insert into lot (sku, received, quantity) select $1, date '2026-01-01' + n, 1 from generate_series(1, $2) n", product, lots)
		if err != nil {
			return err
		}
	}
	return nil
}

// Operate sends a request to the handler, and sends it again with the same key when
// the answer says that the outcome is unknown.
func (deductWorkload) Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error {
	a := &api{guard: env.Guard, pool: env.Pool, decide: stopping(env), requestTimeout: 10 * time.Second, readTimeout: 3 * time.Second}
	order := orderOf(op)
	var doubt error
	for {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(fmt.Sprintf(`{"qty":%d}`, order.Quantity)))
		r.SetPathValue("sku", order.SKU)
		r.Header = http.Header{"Content-Type": {"application/json"}, keyHeader: {order.ID}}
		err := soldOut(a.deduct(httptest.NewRecorder(), r))
		switch {
		case err == nil, errors.As(err, &soldOutError{}):
			return err
		case !errors.Is(err, guard.ErrUnknownOutcome), ctx.Err() != nil:
			return errors.Join(doubt, err) // an earlier attempt may have taken effect
		}
		doubt = err
	}
}

// orderOf is what an operation asks for.
func orderOf(op chaos.Op) Order {
	return Order{ID: op.ID, SKU: strings.TrimPrefix(op.Resource, Resource("")), Quantity: 1 + op.Rand().IntN(3)}
}

// stopping decides as usual, at a point where a run can stop the process.
func stopping(env *chaos.Env) Decision {
	return func(lots []Lot, quantity int) ([]Line, error) {
		env.Point(chaos.PointRead)
		return OldestFirst(lots, quantity)
	}
}

// soldOutError tells a run that there was too little: an operation that got through.
type soldOutError struct{ error }

// Class implements chaos.Classer.
func (soldOutError) Class() string { return "sold out" }

func soldOut(err error) error {
	var told *problem
	if errors.Is(err, ErrSoldOut) || errors.As(err, &told) && told.shortage != nil {
		return soldOutError{err}
	}
	return err
}

func (deductWorkload) Check(ctx context.Context, db *pgxpool.Pool) error {
	return errors.Join(checkLots(ctx, db), checkOrders(ctx, db))
}

// checkLots: no more is reserved of a lot than there was.
func checkLots(ctx context.Context, db *pgxpool.Pool) error {
	rows, err := db.Query(ctx, `
		select l.sku, l.id, l.quantity, sum(r.quantity) from lot l join reservation r on r.lot = l.id
		 group by l.sku, l.id, l.quantity having sum(r.quantity) > l.quantity order by l.id`)
	if err != nil {
		return err
	}
	var errs []error
	var name string
	var id, onHand, reserved int
	_, err = pgx.ForEachRow(rows, []any{&name, &id, &onHand, &reserved}, func() error {
		errs = append(errs, fmt.Errorf("%s: lot %d had %d, %d were reserved", name, id, onHand, reserved))
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// checkOrders: there are the orders that the answers kept for keys name, each with
// its lots, and no others.
func checkOrders(ctx context.Context, db *pgxpool.Pool) error {
	rows, err := db.Query(ctx, "select result from fence.operation")
	if err != nil {
		return err
	}
	told := map[string][]lotLine{}
	var kept []byte
	_, err = pgx.ForEachRow(rows, []any{&kept}, func() error {
		var a answer
		err := json.Unmarshal(kept, &a)
		if a.Deducted != nil {
			told[a.Deducted.Order] = a.Deducted.Lots
		}
		return err
	})
	if err != nil {
		return err
	}
	orders, err := readOrders(ctx, db)
	if err != nil {
		return err
	}
	return compareOrders(told, orders)
}

func compareOrders(told, orders map[string][]lotLine) error {
	var errs []error
	for id, lots := range orders {
		if told[id] == nil {
			errs = append(errs, fmt.Errorf("order %s has %v, and no key stands for it", id, lots))
		}
	}
	for id, lots := range told {
		if !reflect.DeepEqual(lots, orders[id]) {
			errs = append(errs, fmt.Errorf("order %s has %v, its client was told %v", id, orders[id], lots))
		}
	}
	return errors.Join(errs...)
}

// lockedWorkload is the control: the same allocation of the same products under the
// lock alone.
type lockedWorkload struct{ deductWorkload }

func (lockedWorkload) Name() string { return "deductions under the lock alone" }

func (lockedWorkload) Operate(ctx context.Context, env *chaos.Env, op chaos.Op) error {
	return soldOut(sellUnderTheLock(ctx, env.Locker, env.Pool, orderOf(op), stopping(env)))
}

// sellUnderTheLock allocates under the lock alone, of which the database knows nothing.
func sellUnderTheLock(ctx context.Context, locker fence.Locker, pool *pgxpool.Pool, order Order, decide Decision) (err error) {
	lease, err := locker.Acquire(ctx, Resource(order.SKU))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Release(ctx)) }()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := Allocate(ctx, tx, order, decide)
		return err
	})
}

// Check implements chaos.Workload: there are no keys.
func (lockedWorkload) Check(ctx context.Context, db *pgxpool.Pool) error { return checkLots(ctx, db) }
