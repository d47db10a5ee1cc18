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

// The rooms and arrows of docs/architecture.md are those of the code.
func TestImports_AreTheArrowsOfTheArchitecture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/architecture.md")
	require.NoError(t, err)
	written := map[string][]string{}
	for _, row := range architectureRow.FindAllStringSubmatch(string(text), -1) {
		written[row[1]] = packagePath.FindAllString(row[2], -1)
	}
	require.Greater(t, len(written), 10)

	actual := arrows(t, written)
	for _, room := range slices.Sorted(maps.Keys(actual)) {
		want, got := slices.Sorted(maps.Keys(actual[room])), written[room]
		if _, there := written[room]; !there || !slices.Equal(want, got) {
			t.Errorf("docs/architecture.md has to say:\n| `%s` | … | %s |", room, cell(want))
		}
		delete(written, room)
	}
	require.Empty(t, written, "docs/architecture.md has rooms in which there is no package")
}

// arrows returns for each room the rooms that it imports. A package belongs to the
// nearest room above it; one that has none is a room by itself.
func arrows(t *testing.T, rooms map[string][]string) map[string]map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	found := map[string]map[string]bool{}
	for line := range strings.Lines(string(out)) {
		packages := strings.Fields(line)
		from := room(packages[0], rooms)
		if found[from] == nil {
			found[from] = map[string]bool{}
		}
		for _, imported := range packages[1:] {
			if to := room(imported, rooms); strings.HasPrefix(imported+"/", module) && to != from {
				found[from][to] = true
			}
		}
	}
	return found
}

// room returns the room of a package.
func room(pkg string, rooms map[string][]string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(pkg+"/", module), "/")
	name = strings.TrimSuffix(name, "/")
	if name == "" {
		return "."
	}
	for above := name; above != ""; above = above[:max(strings.LastIndex(above, "/"), 0)] {
		if _, ok := rooms[above]; ok {
			return above
		}
	}
	return name
}

func cell(rooms []string) string {
	var quoted []string
	for _, r := range rooms {
		quoted = append(quoted, fmt.Sprintf("`%s`", r))
	}
	return strings.Join(quoted, ", ")
}
