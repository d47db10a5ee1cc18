package mutants

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAll_HaveTheirLines(t *testing.T) {
	t.Parallel()
	require.NoError(t, Check("../../.."))
	require.LessOrEqual(t, len(All()), 143, "one for each line that an invariant rests on, and no more")
}
