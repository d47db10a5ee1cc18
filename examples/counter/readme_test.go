package counter

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README of package chaos shows code that is compiled and run: this package.
func TestReadme_ShowsThisPackage(t *testing.T) {
	readme, err := os.ReadFile("../../chaos/README.md")
	require.NoError(t, err)
	code, err := os.ReadFile("counter.go")
	require.NoError(t, err)
	test, err := os.ReadFile("counter_test.go")
	require.NoError(t, err)
	_, add, found := strings.Cut(string(code), "// Add adds")
	require.True(t, found)
	require.Contains(t, string(readme), "```go\n// Add adds"+add+"```\n")
	require.Contains(t, string(readme), "```go\n"+string(test)+"```\n")
}
