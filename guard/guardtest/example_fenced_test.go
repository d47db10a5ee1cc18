package guardtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/memory"
)

// shipping is a service under test. It keeps what it has shipped in a cache too.
type shipping struct {
	guard *guard.Guard[*memory.Tx]
	cache map[string]string
}

// ship fills the cache when it is certain that the order was shipped.
func (s *shipping) ship(ctx context.Context, order string) error {
	err := guard.Do(ctx, s.guard, order, func(_ context.Context, tx *memory.Tx) error { return tx.Set(order, "shipped") })
	if err == nil {
		s.cache[order] = "shipped"
	}
	return err
}

// shipEarly fills it before that.
func (s *shipping) shipEarly(ctx context.Context, order string) error {
	return guard.Do(ctx, s.guard, order, func(_ context.Context, tx *memory.Tx) error {
		s.cache[order] = "shipped"
		return tx.Set(order, "shipped")
	})
}

// cancel is for callers who hold the order, and send their grants along, and for others.
func cancel(ctx context.Context, on guard.Runner[*memory.Tx], order string) error {
	return guard.Do(ctx, on, order, func(_ context.Context, tx *memory.Tx) error { return tx.Set(order, "cancelled") })
}

// printer stands for the *testing.T of a test, and prints the first line of what that one would report.
type printer struct{ testing.TB }

func (printer) Helper()                  {}
func (printer) Context() context.Context { return context.Background() }

func (printer) Fatalf(format string, args ...any) {
	line, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	fmt.Println("FAIL", line)
}

func ExampleRequireFenced() {
	var t printer
	store, cache := memory.NewStore(), map[string]string{}
	state := func(context.Context) (map[string]string, error) {
		return map[string]string{"7": store.Read("order/7"), "8": store.Read("order/8"), "cached 8": cache["order/8"]}, nil
	}

	guardtest.RequireFenced(t, store, "order/7", func(ctx context.Context, p guardtest.Process[*memory.Tx]) error {
		return (&shipping{p.Guard, cache}).ship(ctx, "order/7")
	}, state)
	guardtest.RequireFenced(t, store, "order/7", func(ctx context.Context, p guardtest.Process[*memory.Tx]) error {
		return cancel(ctx, p.Guard.UnderGrant(p.Grants...), "order/7")
	}, state)
	fmt.Println(state(t.Context()))

	guardtest.RequireFenced(t, store, "order/8", func(ctx context.Context, p guardtest.Process[*memory.Tx]) error {
		return (&shipping{p.Guard, cache}).shipEarly(ctx, "order/8")
	}, state)
	// Output:
	// map[7:cancelled 8: cached 8:] <nil>
	// FAIL guardtest: order/8: superseded before the function in its transaction ran: the state changed: some of what run writes goes around the fence, on another connection or by a COMMIT that run sends as SQL, which commits without a seal; write all of it through the transaction that guard hands it, and leave COMMIT to guard
}
