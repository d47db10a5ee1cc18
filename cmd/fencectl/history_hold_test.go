package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
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

// The reader role sees the policy and the holds, but can't count what a prune would delete.
func TestHistory_IsShownToTheReaderRole(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	reader := newRole(t, dsn, "login")
	admin := connect(t, dsn)
	require.NoError(t, execute(t, admin, oldHistory))
	defer func() { require.NoError(t, execute(t, admin, "drop owned by "+reader)) }()
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "up", "--reader-role", reader, "--database-url", dsn).Code)
	history := func(args ...string) (string, string) {
		t.Helper()
		got := fencectl(t, append([]string{"history", "-o", "csv", "--database-url", with(t, with(t, dsn, "user", reader), "password", "pw")}, args...)...)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		return got.Stdout, got.Stderr
	}
	const owner = "what a prune would delete: only the owner of the schema can ask\n"
	for n, on := range []string{"", "1 resource is on hold: see \"fencectl history holds\"\n", "2 resources are on hold: see \"fencectl history holds\"\n"} {
		stdout, stderr := history("policy")
		require.Equal(t, "keep,keep_entries,keep_once\n,4,7d\n", stdout)
		require.Equal(t, owner+on, stderr)
		require.NoError(t, execute(t, admin, "insert into fence.hold (name, reason) select 'sku/' || count(*), 'case 7' from fence.hold"))
		stdout, _ = history("holds")
		require.Contains(t, stdout, []string{"sku/0", "sku/1", "sku/2"}[n])
	}
	got := fencectl(t, "history", "policy", "--keep", "90d", "--database-url", with(t, with(t, dsn, "user", reader), "password", "pw"))
	require.Equal(t, cli.ExitNotReady, got.Code)
	require.Contains(t, got.Stderr, "--help says which one it needs")
}

func TestHistoryHolds_IsATableOf80Columns(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	require.NoError(t, execute(t, connect(t, dsn), `insert into fence.hold (name, role, at, reason) values
		('sku/42', 'shop_owner', '2026-01-02 03:04:05Z', 'case 2026-117'),
		('sku/43', 'shop_owner', '2026-01-02 03:04:06Z', 'case 2026-118, until the auditors have taken their copy')`))
	term := clitest.NewTerminal(t)
	var stderr bytes.Buffer
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), newRoot(), []string{"history", "holds", "--database-url", dsn}, term.TTY, &stderr))
	term.Close()
	require.Empty(t, stderr.String())
	require.Equal(t, []string{
		"RESOURCE  AT                    BY          REASON",
		"sku/42    2026-01-02T03:04:05Z  shop_owner  case 2026-117",
		"sku/43    2026-01-02T03:04:06Z  shop_owner  case 2026-118, until the auditors",
		"                                            have taken their copy",
		"",
	}, term.Lines())
}
