package doctor

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const guideFile = "../../docs/guides/doctor.md"

var writeGuide = flag.Bool("write-guide", false, "write the table of docs/guides/doctor.md anew")

var table = regexp.MustCompile(`(?s)\| finding \| severity \|.*?\n\n`)

// The table in docs/guides/doctor.md is the catalog.
func TestGuide_ListsAllFindings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(guideFile)
	require.NoError(t, err)
	want := guideTable()
	require.Len(t, table.FindAllString(string(text), -1), 1)
	if *writeGuide {
		text = []byte(table.ReplaceAllLiteralString(string(text), want))
		require.NoError(t, os.WriteFile(guideFile, text, 0o644))
	}
	require.Equal(t, want, table.FindString(string(text)), "run: go test ./internal/doctor -run TestGuide -args -write-guide")
}

var placeholder = regexp.MustCompile(`\{([a-z-]+)\}`)

func guideTable() string {
	var b strings.Builder
	b.WriteString("| finding | severity | found when | why it matters | fix |\n|---|---|---|---|---|\n")
	for _, k := range Catalog {
		fix := k.Fix
		for _, command := range k.Run {
			fix += " `" + command + "`"
		}
		fix = placeholder.ReplaceAllStringFunc(fix, func(word string) string {
			return strings.ToUpper(strings.TrimSuffix(strings.Trim(word, "{}"), "-word"))
		})
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.ID, k.Severity, k.When, k.Why, strings.ReplaceAll(fix, "|", `\|`))
	}
	return b.String() + "\n"
}

// Each ID is unique and readable, and no text is missing.
func TestCatalog_IsComplete(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, k := range Catalog {
		require.Regexp(t, `^[a-z]+(-[a-z]+)*$`, k.ID)
		require.False(t, seen[k.ID], k.ID)
		seen[k.ID] = true
		require.Contains(t, Severities, k.Severity, k.ID)
		for _, text := range []string{k.When, k.Why, k.Fix} {
			require.NotEmpty(t, text, k.ID)
		}
	}
}
