package guard_test

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/memory"
)

// goroutineProfile returns the goroutine profile's blocks, one for each kind of goroutine, that
// have function in their stacks.
func goroutineProfile(t testing.TB, function string) (blocks []string) {
	t.Helper()
	var text bytes.Buffer
	require.NoError(t, pprof.Lookup("goroutine").WriteTo(&text, 1))
	for block := range strings.SplitSeq(text.String(), "\n\n") {
		if strings.Contains(block, function) {
			blocks = append(blocks, block)
		}
	}
	return blocks
}

// inProfile is a function that a profile is searched for. It reads the profile while it runs,
// and while a goroutine of its own does.
//
//go:noinline
func inProfile(t testing.TB, label string) {
	t.Helper()
	for _, function := range []string{"guard_test.inProfile", "guard_test.startedInProfile"} {
		done, running := make(chan struct{}), make(chan struct{})
		ended := make(chan struct{})
		go func() { startedInProfile(running, done); close(ended) }()
		<-running
		blocks := goroutineProfile(t, function)
		close(done)
		<-ended
		require.NotEmpty(t, blocks, function)
		for _, block := range blocks {
			if label == "" {
				require.NotContains(t, block, "# labels:")
			} else {
				require.Contains(t, block, "# labels: "+label)
			}
		}
	}
}

//go:noinline
func startedInProfile(running, done chan struct{}) {
	close(running)
	<-done
}

const skuLabel = `{"resource_class":"sku"}`

// These tests read the profile of the whole process, so they run one after another.

func TestProfileLabels_AreTheClassOfTheFirstResource(t *testing.T) {
	w := newWorld(t)
	labelled, plain := w.process("a", &guard.Config{ProfileLabels: true}), w.process("b", nil)
	do := func(on guard.Runner[*memory.Tx], label string, resources ...string) {
		t.Helper()
		require.NoError(t, guard.Do(t.Context(), on, resources, func(context.Context, *memory.Tx) error {
			inProfile(t, label)
			return nil
		}))
		inProfile(t, "")
	}
	do(labelled, skuLabel, "sku/1", "zebra")
	do(labelled, `{"resource_class":"nightly"}`, "nightly")
	do(labelled.UnderGrant(fence.Grant{Resource: "sku/7", Epoch: 1, Token: 9, Holder: "h"}), skuLabel, "sku/7")
	do(plain, "", "sku/2")
	require.NoError(t, guard.Hold(t.Context(), labelled, sku, func(ctx context.Context, h guard.Runner[*memory.Tx]) error {
		inProfile(t, skuLabel)
		require.NoError(t, guard.Do(ctx, h, sku, func(context.Context, *memory.Tx) error {
			inProfile(t, skuLabel)
			return nil
		}))
		inProfile(t, skuLabel)
		return nil
	}))
	inProfile(t, "")
}

// Whatever way a function ends, its goroutine has the labels of the caller's context afterwards.
func TestProfileLabels_AreThoseOfTheCallerAfterwards(t *testing.T) {
	w := newWorld(t)
	g := w.process("a", &guard.Config{ProfileLabels: true})
	ends := map[string]func(){"panic": explode, "Goexit": runtime.Goexit, "return": func() {}}
	for name, end := range ends {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			pprof.Do(t.Context(), pprof.Labels("mine", "x"), func(ctx context.Context) {
				defer func() {
					_ = recover()
					inProfile(t, `{"mine":"x"}`)
				}()
				_ = guard.Do(ctx, g, sku, func(context.Context, *memory.Tx) error {
					inProfile(t, `{"mine":"x", "resource_class":"sku"}`)
					end()
					return nil
				})
			})
		}()
		<-ended
		require.False(t, t.Failed(), name)
	}
}

func BenchmarkDo_WithProfileLabels(b *testing.B) {
	do := doOnNothing(b, &guard.Config{ProfileLabels: true})
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
}
