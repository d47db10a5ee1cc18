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

var writeGuide = flag.Bool("write-guide", false, "write the findings of docs/guides/doctor.md anew")

var findings = regexp.MustCompile(`(?s)### .*?\n## `)

// The findings in docs/guides/doctor.md are the catalog.
func TestGuide_ListsAllFindings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(guideFile)
	require.NoError(t, err)
	want := guideText() + "## "
	require.Len(t, findings.FindAllString(string(text), -1), 1)
	if *writeGuide {
		text = []byte(findings.ReplaceAllLiteralString(string(text), want))
		require.NoError(t, os.WriteFile(guideFile, text, 0o644))
	}
	require.Equal(t, want, findings.FindString(string(text)), "run: go test ./internal/doctor -run TestGuide -args -write-guide")
}

var placeholder = regexp.MustCompile(`\{([a-z-]+)\}`)

func guideText() string {
	var b strings.Builder
	for _, k := range Catalog {
		fmt.Fprintf(&b, "### %s\n\n**%s**: %s.\n%s\n\n%s\n\n", k.ID, k.Severity, k.When, k.Why, strings.ReplaceAll(inCapitals(k.Fix), "ADVICE", "As the finding says."))
		for _, command := range k.Run {
			fmt.Fprintf(&b, "    %s\n", inCapitals(command))
		}
		if len(k.Run) > 0 {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// inCapitals writes the words that a finding names as the guide does.
func inCapitals(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(word string) string {
		return strings.ToUpper(strings.TrimSuffix(strings.Trim(word, "{}"), "-word"))
	})
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
