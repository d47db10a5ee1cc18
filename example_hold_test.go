package fencekit_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
)

// bank pays out, once for each id. It may check the grants that it is sent.
type bank func(ctx context.Context, id string, n int, grants []fence.Grant) error

// payout reads, calls the bank, and writes. The second transaction commits only if nothing has
// changed the account since the first. guard.Retryable runs all of it again; so it begins by
// reading what is so now, and the bank is sent the same id.
func payout(ctx context.Context, on fencekit.Runner, pay bank, account, id string, n int) error {
	resource := "account/" + account
	return guard.Hold(ctx, on, resource, func(ctx context.Context, h fencekit.Runner) error {
		have, err := guard.Value(ctx, h, resource, func(ctx context.Context, tx pgx.Tx) (int, error) {
			return balance(ctx, tx, account)
		})
		if err != nil {
			return err
		}
		if have < n {
			return errNotEnough
		}
		if err := pay(ctx, id, n, guard.Grants(ctx)); err != nil {
			return fmt.Errorf("bank: %w", err)
		}
		return guard.Do(ctx, h, resource, func(ctx context.Context, tx pgx.Tx) error {
			return setBalance(ctx, tx, account, have-n)
		})
	}, guard.Retryable())
}

// One grant over several transactions, with a call to another service in between.
func Example_hold() {
	ctx := context.Background()
	g, _, done := open(ctx)
	defer done()

	pay := func(_ context.Context, id string, n int, grants []fence.Grant) error {
		fmt.Println("pays", n, "for", id, "under a grant of", grants[0].Resource)
		return nil
	}
	fmt.Println(payout(ctx, g, pay, "a", "payout-1", 4))
	fmt.Println(payout(ctx, g, pay, "a", "payout-2", 7))
	// Output:
	// pays 4 for payout-1 under a grant of account/a
	// <nil>
	// not enough in the account
}
