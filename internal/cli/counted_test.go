package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

func TestCounted(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0 entries, 1 entry, 2 entries", cli.Counted(0, "entry")+", "+cli.Counted(1, "entry")+", "+cli.Counted(2, "entry"))
	require.Equal(t, "1 Once key, 2 Once keys, 2 heads", cli.Counted(int64(1), "Once key")+", "+cli.Counted(2, "Once key")+", "+cli.Counted(2, "head"))
}
