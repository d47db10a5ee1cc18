package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

// A hold is placed on a resource that has a history. A misspelt name or a pattern would protect
// nothing.
func TestHistoryHold_NamesAResourceWithAHistory(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connect(t, dsn)
	require.NoError(t, execute(t, conn, oldHistory))
	history := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		require.NoError(t, execute(t, conn, "update fence.hold set at = '2026-01-02 03:04:05Z'"))
		require.Equal(t, ended(code, stdout, stderr), fencectl(t, append([]string{"history", "--database-url", dsn, "-o", "csv"}, args...)...))
	}
	history(cli.ExitOK, "resource,at,by,reason\n", "no resource is on hold\n", "holds")
	for _, name := range []string{"sku/11", "sku/*"} {
		history(cli.ExitUsage, "", "fencectl: no resource \""+name+"\" has a history: names are exact here, not patterns; to place the hold nevertheless, add --unknown\nRun \"fencectl history hold --help\" for usage.\n",
			"hold", name, "--reason", "case 7")
	}
	history(cli.ExitOK, "resource,at,by,reason\n", "no resource is on hold\n", "holds")

	got := fencectl(t, "history", "hold", "sku/1", "--reason", "case 7", "--database-url", dsn, "-o", "json")
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Equal(t, "the history of sku/1 is on hold\n", got.Stderr)
	var placed map[string]string
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &placed))
	require.NotEmpty(t, placed["at"])
	delete(placed, "at")
	require.Equal(t, map[string]string{"resource": "sku/1", "by": "postgres", "reason": "case 7"}, placed)
	require.Equal(t, cli.ExitOK, fencectl(t, "history", "hold", "sku/*", "--unknown", "--reason", "case 8", "--database-url", dsn).Code)

	history(cli.ExitOK, "resource,at,by,reason\nsku/*,2026-01-02T03:04:05Z,postgres,case 8\nsku/1,2026-01-02T03:04:05Z,postgres,case 7\n", "", "holds")
	history(cli.ExitOK, "resource,released\nsku/1,true\n", "the history of sku/1 may be pruned again\n", "release", "sku/1")
	history(cli.ExitOK, "resource,released\nsku/1,false\n", "nothing to do: the history of sku/1 is not on hold; see \"fencectl history holds\"\n", "release", "sku/1")
	history(cli.ExitOK, "resource,at,by,reason\nsku/*,2026-01-02T03:04:05Z,postgres,case 8\n", "", "holds")
}
