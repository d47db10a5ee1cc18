package guard_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// deduct takes qty from the stock that is kept under key.
func deduct(tx *memory.Tx, key string, qty int) (left int, err error) {
	text, err := tx.Get(key)
	if err != nil {
		return 0, err
	}
	stock, err := strconv.Atoi(text)
	if err != nil {
		return 0, err
	}
	if stock < qty {
		return 0, errors.New("out of stock")
	}
	return stock - qty, tx.Set(key, strconv.Itoa(stock-qty))
}

func ExampleDo() {
	ctx := context.Background()
	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil)
	if err != nil {
		panic(err)
	}
	defer g.Close(ctx)

	err = guard.Do(ctx, g, "sku/42", func(ctx context.Context, tx *memory.Tx) error {
		return tx.Set("stock", "10")
	})
	fmt.Println("stocked:", err)

	err = guard.Do(ctx, g, "sku/42", func(ctx context.Context, tx *memory.Tx) error {
		_, err := deduct(tx, "stock", 20)
		return err
	}, guard.OpID("order-1"), guard.Attr("qty", "20"))
	fmt.Println("sold:", err)
	// Output:
	// stocked: <nil>
	// sold: out of stock
}

func ExampleValue() {
	ctx := context.Background()
	g, err := guard.New(guardtest.NewLocker(), memory.NewStore(), nil)
	if err != nil {
		panic(err)
	}
	defer g.Close(ctx)

	left, err := guard.Value(ctx, g, "sku/42", func(ctx context.Context, tx *memory.Tx) (int, error) {
		if err := tx.Set("stock", "10"); err != nil {
			return 0, err
		}
		return deduct(tx, "stock", 3)
	})
	fmt.Println(left, err)
	// Output: 7 <nil>
}

func ExampleHold() {
	ctx := context.Background()
	locker, store := guardtest.NewLocker(), memory.NewStore()
	locker.Service().SetToken(33)
	g, err := guard.New(locker, store, nil)
	if err != nil {
		panic(err)
	}
	defer g.Close(ctx)

	err = guard.Hold(ctx, g, "sku/42", func(ctx context.Context, h guard.Runner[*memory.Tx]) error {
		if err := guard.Do(ctx, h, sku, func(ctx context.Context, tx *memory.Tx) error { return tx.Set("order", "reserved") }); err != nil {
			return err
		}
		fmt.Println("charging under token", guard.Grants(ctx)[0].Token)
		return guard.Do(ctx, h, sku, func(ctx context.Context, tx *memory.Tx) error { return tx.Set("order", "paid") })
	})
	fmt.Println(store.Read("order"), err)
	// Output:
	// charging under token 33
	// paid <nil>
}

// A holder that was paused sends its grant along. The service that gets the request
// has a Guard without a lock service, and rejects it: a later holder has claimed the resource.
func ExampleGuard_UnderGrant() {
	ctx := context.Background()
	store := memory.NewStore()
	paused := fence.Grant{Resource: "sku/42", Epoch: 1, Token: 118, Holder: "worker-a-7d2f"}
	next := fence.Grant{Resource: "sku/42", Epoch: 1, Token: 131, Holder: "worker-b-91c3"}

	g, err := guard.New(nil, store, nil)
	if err != nil {
		panic(err)
	}
	defer g.Close(ctx)
	write := func(ctx context.Context, tx *memory.Tx) error { return tx.Set("stock", "9") }
	fmt.Println(guard.Do(ctx, g.UnderGrant(next), "sku/42", write))
	err = guard.Do(ctx, g.UnderGrant(paused), "sku/42", write)
	var stale *guard.RejectedError
	if errors.As(err, &stale) {
		fmt.Println("token", stale.Grant.Token, "was superseded by", stale.Current.Token, "of", stale.Current.Holder)
	}
	// Output:
	// <nil>
	// token 118 was superseded by 131 of worker-b-91c3
}

// A COMMIT whose reply was lost is asked about; only if that fails too does the
// caller hear of it, and can ask again later.
func ExampleUnknownOutcomeError() {
	ctx := context.Background()
	store := memory.NewStore()
	g, err := guard.New(guardtest.NewLocker(), store, &guard.Config{ResolveTimeout: 1})
	if err != nil {
		panic(err)
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
