package guard_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
)

// A call on a resource that the process owns makes about 15 allocations beside those of the store.
// This is no bound to keep to: it notices what is made by mistake for each call.
func TestDo_AllocatesLittleOnAResourceThatIsKept(t *testing.T) {
	do := doOnNothing(t, nil)
	do()
	require.LessOrEqual(t, testing.AllocsPerRun(100, do), 20.0)
}

func BenchmarkDo_WithoutAStore(b *testing.B) {
	do := doOnNothing(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
}

// doOnNothing returns guard.Do on one resource in a store that does nothing.
func doOnNothing(t testing.TB, cfg *guard.Config) (do func()) {
	g, err := guard.New[nothing](guardtest.NewLocker(), nothing{}, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	ctx, fn := t.Context(), func(context.Context, nothing) error { return nil }
	return func() {
		if err := guard.Do(ctx, g, sku, fn); err != nil {
			t.Fatal(err)
		}
	}
}

// nothing is a store, and the transaction of one, that keeps and writes nothing.
type nothing struct{ storage.Txn[nothing] }

func (nothing) Claim(_ context.Context, seen ...storage.Claim) ([]storage.Claim, error) {
	return []storage.Claim{{Grant: seen[0].Grant, Resource: 1}}, nil
}

func (nothing) Begin(context.Context, ...storage.Claim) (storage.Txn[nothing], error) {
	return nothing{}, nil
}

func (nothing) BeginReadOnly(context.Context, ...storage.Claim) (storage.Txn[nothing], error) {
	return nothing{}, nil
}

func (nothing) Recall(context.Context, storage.OnceKey, ...storage.Claim) ([]byte, bool, error) {
	return nil, false, nil
}

func (nothing) Resolve(context.Context, storage.InDoubt) (bool, error) { return false, nil }

func (n nothing) Run(ctx context.Context, op storage.Op[nothing]) error { return op.Run(ctx, n) }

func (nothing) Commit(context.Context, []storage.Move) ([]storage.Claim, error) {
	return []storage.Claim{{Grant: fence.Grant{Resource: sku}, Resource: 1}}, nil
}

func (nothing) Rollback(context.Context) {}
