package counter

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README of package chaos shows code that is compiled and run: this package's test.
func TestReadme_ShowsThisPackage(t *testing.T) {
	readme, err := os.ReadFile("../../chaos/README.md")
	require.NoError(t, err)
	test, err := os.ReadFile("counter_test.go")
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\n"+string(test)+"```\n")
}
