package guardtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
)

func repeatFailureOf(t *testing.T, s *shop, run func(ctx context.Context, h holder) error) string {
	r := &reporter{TB: t}
	guardtest.RequireIdempotent(r, s, sku, noValue(run), s.state)
	return r.failure
}

// sellOrder sells and notes the order in the same transaction: a natural key.
func sellOrder(ctx context.Context, tx tx) error {
	if done, err := tx.Get("order"); err != nil || done != "" {
		return err
	}
	return errors.Join(tx.Set("order", "sold"), sell(ctx, tx))
}

func noValue(run func(ctx context.Context, h holder) error) func(ctx context.Context, h holder) (struct{}, error) {
	return func(ctx context.Context, h holder) (struct{}, error) { return struct{}{}, run(ctx, h) }
}

func TestRequireIdempotent_PassesIdempotentFunctions(t *testing.T) {
	t.Parallel()
	once := guard.Once("order-7", nil)
	for name, run := range map[string]func(ctx context.Context, h holder) error{
		"Once": func(ctx context.Context, h holder) error { return doOnce(ctx, h.Guard, sku, sell, once) },
		"Once, Retryable": func(ctx context.Context, h holder) error {
			return doOnce(ctx, h.Guard, sku, sell, once, guard.Retryable())
		},
		"natural key": buys,
		"several resources": func(ctx context.Context, h holder) error {
			return doOnce(ctx, h.Guard, []string{"sku/1", sku}, sell, once)
		},
		"UnderGrant": func(ctx context.Context, h holder) error {
			return doOnce(ctx, h.Guard.UnderGrant(h.Grants...), sku, sell, once)
		},
		"calls again by itself": func(ctx context.Context, h holder) error {
			err := doOnce(ctx, h.Guard, sku, sell, once)
			if errors.Is(err, guard.ErrUnknownOutcome) {
				return doOnce(ctx, h.Guard, sku, sell, once)
			}
			return err
		},
		"asks by itself": func(ctx context.Context, h holder) error {
			err := buys(ctx, h)
			if unknown := new(guard.UnknownOutcomeError); errors.As(err, &unknown) {
				if applied, askErr := unknown.Resolve(ctx); askErr == nil && applied {
					return nil
				}
			}
			return err
		},
		"several transactions": func(ctx context.Context, h holder) error {
			return guard.Hold(ctx, h.Guard, sku, func(ctx context.Context, held guard.Runner[tx]) error {
				for _, step := range []string{"reserve", "pay", "ship", "bill"} {
					if err := doOnce(ctx, held, sku, sell, guard.Once(step, nil)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShop()
				guardtest.RequireIdempotent(t, s, sku, noValue(run), s.state)
				require.Zero(t, s.Open())
			})
		})
	}
}

func buys(ctx context.Context, h holder) error { return guard.Do(ctx, h.Guard, sku, sellOrder) }

// notes makes a function that notes that its work is done in memory, before or after it has done it.
func notes(before bool) func(*shop, context.Context, holder) error {
	return func(s *shop, ctx context.Context, h holder) error {
		if s.noted {
			return nil
		}
		s.noted = before
		err := sellGuarded(ctx, h)
		s.noted = before || err == nil
		return err
	}
}

const pays = "the state changed each of the 5 times that run was called after its answer was lost, so a second call after guard.ErrUnknownOutcome takes effect a second time; give it guard.Once"

var repeated = map[string]mistake{
	"pays each time":                 {after(func(err error) error { return err }), pays},
	"remembers the answer in memory": {notes(false), pays},
	"notes it in a later transaction": {
		func(s *shop, ctx context.Context, h holder) error {
			if s.Read("order") != "" {
				return nil
			}
			if err := sellGuarded(ctx, h); err != nil {
				return err
			}
			return guard.Do(ctx, h.Guard, sku, func(_ context.Context, tx tx) error { return tx.Set("order", "sold") })
		}, pays,
	},
	"notes it before": {
		notes(true), "run returned nil, and the state is what it was in the beginning: a call whose COMMIT was lost left a note that the work is done",
	},
	"swallows that it is unknown": {
		func(_ *shop, ctx context.Context, h holder) error { _ = buys(ctx, h); return nil },
		"run returned nil though its COMMIT was lost and took no effect; return the error, so that its caller doesn't take the work for done",
	},
	"takes its own work for another call's": {
		does(func(_ *shop, ctx context.Context, tx tx) error {
			if done, err := tx.Get("order"); err != nil || done != "" {
				return errors.Join(err, errSoldOut)
			}
			return sellOrder(ctx, tx)
		}),
		"run failed when it was called again, although the work was done; return nil where run finds its own work: out of stock",
	},
	"fails the second time": {
		func(s *shop, ctx context.Context, h holder) error {
			if s.calls++; s.calls > 1 {
				return errSoldOut
			}
			return sellGuarded(ctx, h)
		},
		"run can't be called again after a call whose COMMIT was lost and took no effect: out of stock",
	},
	"writes around the transaction at once": {
		func(s *shop, ctx context.Context, h holder) error { s.around(); return buys(ctx, h) },
		"the state changed, and COMMIT was lost: some of what run writes isn't part of its transaction",
	},
	"writes around the transaction in the end": {
		func(s *shop, ctx context.Context, h holder) error {
			err := buys(ctx, h)
			if err == nil {
				s.around()
			}
			return err
		},
		"the state changed, and not by a COMMIT: some of what run writes isn't part of its transaction",
	},
	"does nothing": {returns(nil), "run returned nil and sent no COMMIT; let it write with the Guard or the Grants of its Process"},
	"changes nothing that state sees": {
		does(func(_ *shop, _ context.Context, tx tx) error { return tx.Set("elsewhere", "1") }), "or state doesn't return what run writes",
	},
	"fails by itself": {returns(errSoldOut), "run failed before it came to its COMMIT; prepare the data such that it succeeds: out of stock"},
	"ends its transaction by SQL": {
		does(func(*shop, context.Context, tx) error { return fmt.Errorf("%w by SQL", guard.ErrTxEnded) }),
		"run ended its transaction by SQL of its own, or used it after its end; leave COMMIT and ROLLBACK to guard, and return nil or an error: guard: transaction has ended by SQL",
	},
}

func TestRequireIdempotent_ReportsEachMistake(t *testing.T) {
	t.Parallel()
	for name, c := range repeated {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop()
				failure := repeatFailureOf(t, s, func(ctx context.Context, h holder) error { return c.run(s, ctx, h) })
				require.Contains(t, failure, "guardtest: sku/42: ")
				require.Contains(t, failure, c.failure)
				require.Zero(t, s.Open())
			})
		})
	}
}
