package mutants

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
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

// isThere reports whether the test's function is in its package, and the name of each
// level of its subtest in the package's tests or in the contract that they run.
func isThere(t *testing.T, test Test) bool {
	t.Helper()
	function, subtests, nested := strings.Cut(test.Name, "/")
	tests := sources(t, test.Package, "*_test.go")
	if !strings.Contains(tests, "\nfunc "+function+"(t *testing.T) {") {
		return false
	}
	if !nested {
		return true
	}
	names := literals(tests + sources(t, "guard/guardtest", "*.go"))
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		names[strings.ReplaceAll(string(level), " ", "_")] = true
	}
	for name := range strings.SplitSeq(subtests, "/") {
		if !names[name] && !isJoined(names, name) {
			return false
		}
	}
	return true
}

// isJoined reports whether two of names make up name, as in t.Run(place+" "+outcome, …).
func isJoined(names map[string]bool, name string) bool {
	for i := range name {
		if name[i] == '_' && names[strings.TrimSuffix(name[:i], ",")] && names[name[i+1:]] {
			return true
		}
	}
	return false
}

var literal = regexp.MustCompile(`"([^"\n]*)"`)

// literals returns the strings of source, as they are in names of tests.
func literals(source string) map[string]bool {
	found := map[string]bool{}
	for _, match := range literal.FindAllStringSubmatch(source, -1) {
		found[strings.ReplaceAll(match[1], " ", "_")] = true
	}
	return found
}

// sources is the text of the files of a package whose names match pattern.
func sources(t *testing.T, pkg, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, pattern))
	require.NoError(t, err)
	var text strings.Builder
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(source)
	}
	return text.String()
}
