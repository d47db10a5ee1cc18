package guard_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/memory"
)

// What a call costs beside the database: memory's Set is next to nothing.
func BenchmarkDo_OwnershipKept(b *testing.B) {
	w := newWorld(b)
	g := w.process("a", nil)
	for b.Loop() {
		if err := guard.Do(b.Context(), g, sku, set("k", "v")); err != nil {
			b.Fatal(err)
		}
	}
}

// What a Guard keeps for a resource that it owns and doesn't use: without the lock service's
// part, and without the name.
func BenchmarkKeepFor_BytesOfAResource(b *testing.B) {
	const many = 10_000
	store, names := memory.NewStore(), make([]string, many)
	for i := range names {
		names[i] = fmt.Sprint("sku/", i)
	}
	var kept uint64
	for b.Loop() {
		g, err := guard.New(slightLocker{}, store, &guard.Config{KeepFor: time.Hour})
		require.NoError(b, err)
		for _, name := range names {
			require.NoError(b, guard.Do(b.Context(), g, name, func(context.Context, *memory.Tx) error { return nil }))
		}
		held := heap()
		require.NoError(b, g.Close(b.Context()))
		g = nil
		kept = held - heap()
	}
	b.ReportMetric(float64(kept)/many, "B/resource")
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// slightLocker grants each resource at once, with one token after another, and keeps nothing.
type slightLocker struct{ fence.Locker }

func (slightLocker) Acquire(_ context.Context, resource string) (fence.Lease, error) {
	return &slightLease{resource: resource, token: fence.Token(time.Now().UnixNano())}, nil
}

type slightLease struct {
	fence.Lease
	resource  string
	token     fence.Token
	lost      func()
	contended func()
}

func (l *slightLease) Grant() fence.Grant {
	return fence.Grant{Resource: l.resource, Epoch: 1, Token: l.token, Holder: "a"}
}
func (l *slightLease) Err() error         { return nil }
func (l *slightLease) AfterLost(f func()) { l.lost = f }
func (l *slightLease) AfterContended(f func()) func() bool {
	l.contended = f
	return nil
}
func (l *slightLease) Release(context.Context) error { return nil }

// A call on a resource that the process owns makes about 15 allocations beside those of the store.
// This is no bound to keep to: it notices what is made by mistake for each call.
func TestDo_AllocatesLittleOnAResourceThatIsKept(t *testing.T) {
	do := doOnNothing(t, nil)
	do()
	require.LessOrEqual(t, testing.AllocsPerRun(100, do), 25.0)
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
