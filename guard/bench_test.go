package guard_test

import (
	"fmt"
	"testing"

	"github.com/fencekit/fencekit/guard"
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
