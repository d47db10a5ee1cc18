package review_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/guides/auditing.md shows what the commands print.
func TestGuide_ShowsTheGoldenTexts(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/guides/auditing.md")
	require.NoError(t, err)
	for _, name := range []string{"report.txt", "why-rejection.txt", "why-operation.txt"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.Contains(t, string(guide), "```text\n"+string(text)+"```\n", name)
	}
}
