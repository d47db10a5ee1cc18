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
	packages := map[string]tests{}
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
			in := m.Killer.Package
			if _, known := packages[in]; !known {
				packages[in] = readTests(t, in)
			}
			require.True(t, packages[in].have(m.Killer), "there is no %s", m.Killer)
		})
	}
}

// tests are those of a package.
type tests struct {
	source string
	// names are the strings of source, and of the contract that it runs: a subtest has
	// one of them as its name, or two.
	names map[string]bool
}

func readTests(t *testing.T, pkg string) tests {
	t.Helper()
	source := sources(t, pkg, "*_test.go")
	names := literals(source + sources(t, "guard/guardtest", "*.go"))
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		names[strings.ReplaceAll(string(level), " ", "_")] = true
	}
	return tests{source, names}
}

// have reports whether the test's function is there, and the name of each level of its
// subtest.
func (in tests) have(test Test) bool {
	function, subtests, nested := strings.Cut(test.Name, "/")
	if !strings.Contains(in.source, "\nfunc "+function+"(t *testing.T) {") {
		return false
	}
	if !nested {
		return true
	}
	for name := range strings.SplitSeq(subtests, "/") {
		if !in.names[name] && !isJoined(in.names, name) {
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
