package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

func TestCSV_HasNoFormulas(t *testing.T) {
	t.Parallel()
	rows := []narrowRow{{"=cmd|' /C calc'!A0", "@SUM(1)", "-5"}, {"\t=1", "+1+1", "-1.5e3"}, {"sku/=1", "-x", "a-1"}}
	var b strings.Builder
	require.NoError(t, cli.WriteEach(&b, cli.FormatCSV, slices.Values(rows)))
	require.Equal(t, "name,changes,hand_over_p99,story\n"+
		"'=cmd|' /C calc'!A0,'@SUM(1),,-5\n'\t=1,'+1+1,,-1.5e3\nsku/=1,'-x,,a-1\n", b.String())
	list := strings.Builder{}
	require.NoError(t, cli.WriteList(&list, cli.FormatCSV, rows))
	require.Equal(t, b.String(), list.String())
}
