package guard_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"

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
