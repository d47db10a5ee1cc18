package telemetry

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"sync"
	"sync/atomic"
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
	m, err := New(0, func(context.Context, Metric, float64, string, Values) {})
	require.NoError(t, err)
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

func classesUpTo(limit int) *classes { return &classes{limit: limit, known: map[string]bool{}} }

func TestClasses_AreThePartBeforeTheFirstSlash(t *testing.T) {
	t.Parallel()
	s := classesUpTo(10)
	for resource, want := range map[string]string{"sku/42": "sku", "sku/a/b": "sku", "nightly": "nightly", "/etc": "/", "/": "/"} {
		got, _ := s.of(resource)
		require.Equal(t, want, got, resource)
	}
}

func TestClasses_AreNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	s, met := classesUpTo(3), map[string]int{}
	for i := range 100_000 {
		of, _ := s.of(fmt.Sprint("job-", i))
		met[of]++
	}
	require.Equal(t, map[string]int{"job-0": 1, "job-1": 1, "job-2": 1, otherClass: 99_997}, met)
	known, fresh := s.of("job-1")
	require.Equal(t, "job-1", known, "a class stays what it is")
	require.False(t, fresh)
}

func TestClasses_AreFreshOnce(t *testing.T) {
	t.Parallel()
	resources := []string{"a/1", "other/1", "b/1", "c/1", "d/1"} // other is a class of resources, too
	for limit, want := range map[int]int64{1: 2, 2: 2, 3: 3, 5: 5} {
		s := classesUpTo(limit)
		var fresh atomic.Int64
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				for _, resource := range resources {
					if _, first := s.of(resource); first {
						fresh.Add(1)
					}
				}
			})
		}
		asking.Wait()
		require.Equal(t, want, fresh.Load(), "limit %d", limit)
	}
}
