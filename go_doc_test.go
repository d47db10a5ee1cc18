package fencekit_test

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// What go doc prints of each package that users start from fits on a screen of 80 columns.
func TestDocs_GoDocFitsOnAScreen(t *testing.T) {
	const columns = 80
	for pkg, limit := range map[string]int{".": 50, "./fence": 50, "./guard": 58} {
		text, err := exec.CommandContext(t.Context(), "go", "doc", pkg).Output()
		require.NoError(t, err)
		lines := 0
		for line := range strings.Lines(string(text)) {
			lines += max(1, (utf8.RuneCountInString(strings.TrimRight(line, "\n"))+columns-1)/columns)
		}
		require.LessOrEqual(t, lines, limit, "go doc %s is too long", pkg)
	}
}
