package review

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
)

// constants returns the values of the constants of a type in a file of package storage.
func constants(t *testing.T, typeName string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../storage/rejection.go", nil, 0)
	require.NoError(t, err)
	var values []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typeName {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			values = append(values, value)
		}
		return true
	})
	require.NotEmpty(t, values)
	return values
}

func TestWords_ExplainEachReasonAndEachStage(t *testing.T) {
	t.Parallel()
	for _, reason := range constants(t, "Reason") {
		words := reasons[storage.Reason(reason)]
		require.NotEmpty(t, words.because, reason)
		require.NotEmpty(t, words.meaning, reason)
	}
	for _, stage := range constants(t, "Stage") {
		require.NotEmpty(t, stages[storage.Stage(stage)], stage)
	}
	require.Contains(t, explainReason("new").because, "(new)")
	require.Contains(t, explainStage("new"), "(new)")
}
