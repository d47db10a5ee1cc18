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

func BenchmarkDo_ResourcesInParallel(b *testing.B) {
	w := newWorld(b)
	g := w.process("a", nil)
	b.RunParallel(func(pb *testing.PB) {
		resource := fmt.Sprintf("sku/%p", pb)
		for pb.Next() {
			if err := guard.Do(b.Context(), g, resource, set("k", "v")); err != nil {
				b.Error(err)
				return
			}
		}
	})
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
