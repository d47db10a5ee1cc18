package telemetry

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
)

// A grant is kept until it is claimed or given up, whichever comes first.
func TestMetrics_ForgetGrantsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	m := New(func(context.Context, Metric, float64, string, Values) {})
	o := m.Observer()
	for i := range 1000 {
		grant := fence.Grant{Resource: "sku/1", Epoch: 1, Token: fence.Token(i + 1), Holder: "h"}
		o.Acquired(t.Context(), grant, time.Second)
		if i%2 == 0 {
			o.Claimed(t.Context(), grant, time.Second)
		}
		o.Released(grant, nil)
	}
	require.Empty(t, m.requested)
}

// A class stays what it is, and its counters begin at 0 once, whoever asks.
func TestClass_IsThePartBeforeTheFirstSlashUpToTheLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]map[string]string{
		1: {"sku/42": "sku", "sku/a/b": "sku", "other/1": "other", "/etc": "other", "nightly": "other"},
		2: {"sku/42": "sku", "sku/a/b": "sku", "other/1": "other", "/etc": "other", "nightly": "other"},
		3: {"sku/42": "sku", "sku/a/b": "sku", "other/1": "other", "/etc": "/", "nightly": "other"},
		9: {"sku/42": "sku", "sku/a/b": "sku", "other/1": "other", "/etc": "/", "nightly": "nightly"},
	} {
		var mu sync.Mutex
		began := map[string]int{}
		m := New(func(_ context.Context, metric Metric, value float64, class string, _ Values) {
			mu.Lock()
			defer mu.Unlock()
			if metric == Acquires && value == 0 {
				began[class]++
			}
		})
		m.limit = limit
		var asking sync.WaitGroup
		classes := make([]map[string]string, 8)
		for i := range classes {
			classes[i] = map[string]string{}
			ask := func() {
				for _, resource := range []string{"sku/42", "sku/a/b", "other/1", "/etc", "nightly"} {
					classes[i][resource] = m.Class(t.Context(), resource)
				}
			}
			if i == 0 {
				ask() // which meets the classes in this order
			}
			asking.Go(ask)
		}
		asking.Wait()
		for _, got := range classes {
			require.Equal(t, want, got, limit)
		}
		for class, times := range began {
			require.Equal(t, 1, times, class)
		}
	}
}
