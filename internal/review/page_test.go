package review

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// constants returns the values of the constants of a type in a file of package storage.
func constants(t *testing.T, typeName string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../storage/errors.go", nil, 0)
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

// Two names that differ in white space alone look different.
func TestSentences_LeaveNamesAsTheyAre(t *testing.T) {
	t.Parallel()
	text, err := sentence("title", &story{Question: Question{Resource: "sku/a\u00a0 b", OpID: "two\nlines "}, Entry: new(Event)})
	require.NoError(t, err)
	require.Equal(t, "Operation two\nlines  of sku/a\u00a0 b", text)
}

func TestSentences_ExplainEachReasonAndEachStage(t *testing.T) {
	t.Parallel()
	for _, reason := range constants(t, "Reason") {
		require.NotNil(t, sentences.Lookup("because "+reason), reason)
		require.NotNil(t, sentences.Lookup("meaning "+reason), reason)
	}
	for _, stage := range constants(t, "Stage") {
		require.NotNil(t, sentences.Lookup("stage "+stage), stage)
	}
	for name, want := range map[string]string{"because new": "(new)", "meaning new": "newer version", "stage new": "(new)"} {
		text, err := sentence(name, &Rejection{Reason: "new", Stage: "new"})
		require.NoError(t, err)
		require.Contains(t, text, want)
	}
}
