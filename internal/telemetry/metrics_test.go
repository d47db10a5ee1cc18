package telemetry

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
)

// constants returns the string constants of a type that a file declares.
func constants(t *testing.T, file, typ string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typ {
				value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
				require.NoError(t, err)
				values = append(values, value)
			}
		}
		return true
	})
	require.NotEmpty(t, values)
	return values
}

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

// A reason, a loss or an outcome that is added gets a label of its own.
func TestLabels_AreThereForEveryConstant(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, outcomes, constants(t, "../../guard/observer.go", "Outcome"))
	var of []string
	for _, reason := range constants(t, "../../storage/errors.go", "Reason") {
		of = append(of, ReasonLabel(storage.Reason(reason)))
	}
	require.ElementsMatch(t, reasons, append(of, unlisted))
	of = nil
	for _, loss := range constants(t, "../../fence/errors.go", "LossReason") {
		of = append(of, lossLabel(fence.LossReason(loss)))
	}
	require.ElementsMatch(t, losses, append(of, unlisted))
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
