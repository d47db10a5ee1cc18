package fencekit_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/guard"
)

var errNotEnough = errors.New("not enough in the account")

// receipt is what a client gets, also from a call that it repeats.
type receipt struct{ From, To int }

// transfer moves n from one account to another, once for each key.
func transfer(ctx context.Context, on fencekit.Runner, from, to string, n int, key string, request []byte) (receipt, error) {
	return guard.Value(ctx, on, []string{"account/" + from, "account/" + to}, func(ctx context.Context, tx pgx.Tx) (receipt, error) {
		var r receipt
		var err error
		if r.From, err = balance(ctx, tx, from); err != nil {
			return receipt{}, err
		}
		if r.To, err = balance(ctx, tx, to); err != nil {
			return receipt{}, err
		}
		if r.From < n {
			return receipt{}, errNotEnough
		}
		r = receipt{From: r.From - n, To: r.To + n}
		return r, errors.Join(setBalance(ctx, tx, from, r.From), setBalance(ctx, tx, to, r.To))
	}, guard.Once(key, request), guard.Retryable(), guard.OpName("transfer"))
}

func balance(ctx context.Context, tx pgx.Tx, account string) (n int, err error) {
	err = tx.QueryRow(ctx, "select balance from account where name = $1", account).Scan(&n)
	return n, err
}

func setBalance(ctx context.Context, tx pgx.Tx, account string, n int) error {
	_, err := tx.Exec(ctx, "update account set balance = $2 where name = $1", account, n)
	return err
}

// Two resources in one transaction, and a call that may be sent again with its key.
func Example_once() {
	ctx := context.Background()
	g, _, done := open(ctx)
	defer done()

	for range 2 { // the second time as a client does that didn't get the answer
		fmt.Println(transfer(ctx, g, "a", "b", 3, "key-1", []byte("3 from a to b")))
	}
	_, err := transfer(ctx, g, "a", "b", 4, "key-1", []byte("4 from a to b"))
	fmt.Println(errors.Is(err, guard.ErrKeyReused), guard.SafeToRetry(err))
	// Output:
	// {7 3} <nil>
	// {7 3} <nil>
	// true false
}
