package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// Runner is that of the examples' store; with Postgres it is fencekit.Runner.
type Runner = guard.Runner[*memory.Tx]

// restock adds n to the stock of an article: guard.Do, for a function without a value.
func restock(ctx context.Context, on Runner, article string, n int) error {
	return guard.Do(ctx, on, article, func(ctx context.Context, tx *memory.Tx) error {
		_, err := add(tx, article, n)
		return err
	})
}

// sell takes n from the stock and says what is left: guard.Value.
func sell(ctx context.Context, on Runner, article string, n int) (left int, err error) {
	return guard.Value(ctx, on, article, func(ctx context.Context, tx *memory.Tx) (int, error) {
		return add(tx, article, -n)
	})
}

var errSoldOut = errors.New("sold out")

// add reads, decides and writes.
func add(tx *memory.Tx, article string, n int) (int, error) {
	text, err := tx.Get(article)
	if err != nil {
		return 0, err
	}
	stock, _ := strconv.Atoi(text) // none for an article that was never in stock
	if stock+n < 0 {
		return 0, errSoldOut
	}
	return stock + n, tx.Set(article, strconv.Itoa(stock+n))
}

// One resource: a Guard acquires its grant, claims it, and runs the function.
func ExampleDo() {
	ctx := context.Background()
	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)

	fmt.Println(restock(ctx, g, "sku/42", 10))
	// Output: <nil>
}

// The function's value comes back if it took effect, and with an error the zero value.
func ExampleValue() {
	ctx := context.Background()
	g := newGuard()
	defer g.Close(ctx)

	fmt.Println(restock(ctx, g, "sku/42", 10))
	fmt.Println(sell(ctx, g, "sku/42", 3))
	fmt.Println(sell(ctx, g, "sku/42", 8))
	// Output:
	// <nil>
	// 7 <nil>
	// 0 sold out
}

// Several resources: one transaction commits under all of their grants, or not at all.
func ExampleResources() {
	ctx := context.Background()
	g := newGuard()
	defer g.Close(ctx)
	articles := []string{"sku/42", "sku/43"}

	fmt.Println(guard.Do(ctx, g, articles, func(ctx context.Context, tx *memory.Tx) error {
		for _, article := range articles {
			if _, err := add(tx, article, 10); err != nil {
				return err
			}
		}
		return nil
	}))
	fmt.Println(guard.Value(ctx, g, articles, func(ctx context.Context, tx *memory.Tx) (left []int, err error) {
		for _, article := range articles {
			n, err := add(tx, article, -1)
			if err != nil {
				return nil, err
			}
			left = append(left, n)
		}
		return left, nil
	}))
	// Output:
	// <nil>
	// [9 9] <nil>
}

// A held grant: restock and sell run in two transactions under it, with other work in
// between, and the second one commits only if nothing else has written since the first.
func ExampleHold() {
	ctx := context.Background()
	g := newGuard()
	defer g.Close(ctx)

	err := guard.Hold(ctx, g, "sku/42", func(ctx context.Context, h Runner) error {
		if err := restock(ctx, h, "sku/42", 10); err != nil {
			return err
		}
		fmt.Println("call another service, under the grant of", guard.Grants(ctx)[0].Resource)
		left, err := sell(ctx, h, "sku/42", 3)
		fmt.Println(left, "left")
		return err
	})
	fmt.Println(err)
	// Output:
	// call another service, under the grant of sku/42
	// 7 left
	// <nil>
}

// A lease of the caller's, here that of an elected leader: what a deposed leader
// writes is rejected once its successor has begun.
func ExampleGuard_UnderLease() {
	ctx := context.Background()
	locker := guardtest.NewLocker()
	g, err := guard.New(locker, memory.NewStore(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)
	election, err := locker.Election("sku/42")
	if err != nil {
		log.Fatal(err)
	}
	leadership, err := election.Campaign(ctx, "10.0.0.7:8080")
	if err != nil {
		log.Fatal(err)
	}
	defer leadership.Resign(ctx)

	on := g.UnderLease(leadership)
	fmt.Println(restock(ctx, on, "sku/42", 10))
	fmt.Println(sell(ctx, on, "sku/42", 3))
	// Output:
	// <nil>
	// 7 <nil>
}

// A grant that travelled, as in the header of a request: the receiver has a Guard
// without a lock service. Once a later grant has claimed, the earlier one is rejected.
func ExampleGuard_UnderGrant() {
	ctx := context.Background()
	g, err := guard.New(nil, memory.NewStore(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)
	paused := fence.Grant{Resource: "sku/42", Epoch: 1, Token: 118, Holder: "worker-a-7d2f"}
	next := fence.Grant{Resource: "sku/42", Epoch: 1, Token: 131, Holder: "worker-b-91c3"}

	fmt.Println(restock(ctx, g.UnderGrant(next), "sku/42", 10))
	fmt.Println(sell(ctx, g.UnderGrant(next), "sku/42", 3))
	_, err = sell(ctx, g.UnderGrant(paused), "sku/42", 2)
	var rejected *guard.RejectedError
	if errors.As(err, &rejected) {
		fmt.Println("token", rejected.Grant.Token, "was superseded by", rejected.Current.Token, "of", rejected.Current.Holder)
	}
	// Output:
	// <nil>
	// 7 <nil>
	// token 118 was superseded by 131 of worker-b-91c3
}

// A COMMIT whose reply was lost is asked about; only if that fails too does the
// caller hear of it, and can ask again later.
func ExampleUnknownOutcomeError() {
	ctx := context.Background()
	store := memory.NewStore()
	g, err := guard.New(guardtest.NewLocker(), store, &guard.Config{ResolveTimeout: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close(ctx)
	store.SetFaults(memory.Faults{Commit: func(storage.InDoubt) memory.Fate { return memory.ReplyLost }})

	err = guard.Do(ctx, g, "sku/42", func(ctx context.Context, tx *memory.Tx) error { return tx.Set("stock", "10") })
	var unknown *guard.UnknownOutcomeError
	if errors.As(err, &unknown) {
		applied, err := unknown.Resolve(ctx)
		fmt.Println("applied:", applied, err)
	}
	// Output: applied: true <nil>
}

// newGuard returns a Guard as ExampleDo makes one.
func newGuard() *guard.Guard[*memory.Tx] {
	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return g
}
