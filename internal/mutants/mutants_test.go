package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// The table still fits the source: each text to replace is there once, each change
// changes something and leaves Go code that parses, and each killer is there.
func TestAll_FitsTheSource(t *testing.T) {
	names := map[string]bool{}
	for _, m := range All() {
		t.Run(m.Name, func(t *testing.T) {
			require.False(t, names[m.Name], "another mutant has the same name")
			names[m.Name] = true
			require.NotEmpty(t, m.Breaks)
			changed, err := m.Apply(root)
			require.NoError(t, err)
			require.NotEmpty(t, changed)
			for file, text := range changed {
				source, err := os.ReadFile(filepath.Join(root, file))
				require.NoError(t, err)
				require.NotEqual(t, string(source), text)
				if strings.HasSuffix(file, ".go") {
					_, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
					require.NoError(t, err)
				}
			}
			require.True(t, isThere(t, m.Killer), "there is no %s", m.Killer)
		})
	}
}

func isThere(t *testing.T, test Test) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, test.Package, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.Contains(string(source), "\nfunc "+test.Function()+"(t *testing.T) {") {
			return true
		}
	}
	return false
}
