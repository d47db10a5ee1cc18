package imports

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// architectureRow is a package of docs/architecture.md: its path, and what it imports.
var (
	architectureRow = regexp.MustCompile("(?m)^[|] `([-./[:word:]]+)` [|][^|]+[|]([^|]*)[|]$")
	packagePath     = regexp.MustCompile(`[-./[:word:]]+`)
)

// The packages and imports in docs/architecture.md are those of the code.
func TestImports_MatchTheArchitecture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	written := map[string][]string{}
	for _, row := range architectureRow.FindAllStringSubmatch(string(text), -1) {
		written[row[1]] = packagePath.FindAllString(row[2], -1)
	}
	require.Greater(t, len(written), 10)

	actual := importsByRow(t, written)
	for _, row := range slices.Sorted(maps.Keys(actual)) {
		want, got := slices.Sorted(maps.Keys(actual[row])), written[row]
		if _, there := written[row]; !there || !slices.Equal(want, got) {
			t.Errorf("docs/architecture.md has to say:\n| `%s` | … | %s |", row, cell(want))
		}
		delete(written, row)
	}
	require.Empty(t, written, "docs/architecture.md has rows without a package")
}

// importsByRow returns for each row the rows that it imports. A package belongs to the
// nearest row above it; one that has none is a row by itself.
func importsByRow(t *testing.T, rows map[string][]string) map[string]map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	found := map[string]map[string]bool{}
	for line := range strings.Lines(string(out)) {
		packages := strings.Fields(line)
		from := rowOf(packages[0], rows)
		if found[from] == nil {
			found[from] = map[string]bool{}
		}
		for _, imported := range packages[1:] {
			if to := rowOf(imported, rows); strings.HasPrefix(imported+"/", module) && to != from {
				found[from][to] = true
			}
		}
	}
	return found
}

// rowOf returns the row of a package.
func rowOf(pkg string, rows map[string][]string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(pkg+"/", module), "/")
	name = strings.TrimSuffix(name, "/")
	if name == "" {
		return "."
	}
	for above := name; above != ""; above = above[:max(strings.LastIndex(above, "/"), 0)] {
		if _, ok := rows[above]; ok {
			return above
		}
	}
	return name
}

func cell(rows []string) string {
	var quoted []string
	for _, r := range rows {
		quoted = append(quoted, fmt.Sprintf("`%s`", r))
	}
	return strings.Join(quoted, ", ")
}
