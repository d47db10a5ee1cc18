package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/postgres"
)

// reserved returns what there is to be compared: all reservations.
func reserved(t testing.TB, pool *pgxpool.Pool) func(context.Context) (map[string]int, error) {
	return func(context.Context) (map[string]int, error) { return reservedByOrder(t, pool), nil }
}

func storeOn(t testing.TB, pool *pgxpool.Pool) *postgres.Store {
	t.Helper()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	return store
}

// The handler as it is, with its key and its retries: whenever its grant is
// superseded, it deducts nothing.
func TestDeduct_IsFenced(t *testing.T) {
	t.Parallel()
	_, pool := stocked(t)
	deduct := func(ctx context.Context, h guardtest.Process[pgx.Tx]) error {
		a := &api{guard: h.Guard, pool: pool, decide: OldestFirst, requestTimeout: patience, readTimeout: patience}
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/skus/"+SKU+"/deduct", strings.NewReader(`{"qty":2}`))
		r.SetPathValue("sku", SKU)
		r.Header = http.Header{"Content-Type": {"application/json"}, keyHeader: {"key"}}
		return a.deduct(httptest.NewRecorder(), r)
	}
	guardtest.RequireFenced(t, storeOn(t, pool), Resource(SKU), deduct, reserved(t, pool))
	require.Len(t, reservedByOrder(t, pool), 1, "once, when it was not superseded")
}

// reporter is a test that notes how it failed, and nothing else.
type reporter struct {
	testing.TB
	failure string
}

func (*reporter) Helper() {}

func (r *reporter) Fatalf(format string, args ...any) { r.failure = fmt.Sprintf(format, args...) }

// The control: with the lock alone the same allocation isn't fenced, and is found
// out.
func TestDeduct_WithTheLockAloneIsFoundOut(t *testing.T) {
	t.Parallel()
	_, pool := stocked(t)
	sell := func(ctx context.Context, _ guardtest.Process[pgx.Tx]) error {
		return sellUnderTheLock(ctx, guardtest.NewLocker(), pool, Order{ID: newOrderID(), SKU: SKU, Quantity: 2}, OldestFirst)
	}
	r := &reporter{TB: t}
	guardtest.RequireFenced(r, storeOn(t, pool), Resource(SKU), sell, reserved(t, pool))
	require.Contains(t, r.failure, "sku/lamp-7: superseded before its claim: the state changed, and run claimed nothing: it writes around the fence")
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
