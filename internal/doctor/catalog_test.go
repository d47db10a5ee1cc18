package doctor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

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
