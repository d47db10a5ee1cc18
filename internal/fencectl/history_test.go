package fencectl

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

// A resource with a claim and nine writes, all of them old: the hashes don't matter here.
const oldHistory = `insert into fence.resource (timeline, epoch, token, prev_token, claim_seq, claimed_at, seq, tx, hash, holder, name)
		values (1, 1, 5, 0, 1, now(), 10, 10, '', 'a', 'sku/1');
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, epoch, token, timeline, holder, name)
		select id, 'c', 1, 1, 1, '3', now() - interval '100 days', '\x01', 1, 5, 1, 'a', name from fence.resource;
	insert into fence.history (resource, kind, seq, claim, tx, xid, at, hash, ops)
		select id, 'w', i, 1, i, '3', now() - interval '100 days', '\x02', '[]' from fence.resource, generate_series(2, 10) i;
	update fence.setting set history_keep_entries = 4;
	insert into fence.operation (resource, key, request, tx, at)
		select 1, 'k' || i, decode(repeat('00', 32), 'hex'), 1, now() - interval '100 days' from generate_series(1, 3) i`

func TestHistoryPrune_DeletesAndExports(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	require.NoError(t, execute(t, connect(t, dsn), oldHistory))
	prune := func(want string, args ...string) {
		t.Helper()
		got := fencectl(t, append([]string{"history", "prune", "--database-url", dsn}, args...)...)
		require.Equal(t, ended(cli.ExitOK, tableOf("entries,rejections,once_keys\n"+want), ""), got)
	}
	file := filepath.Join(t.TempDir(), "export.jsonl")
	prune("0,0,0")
	prune("0,0,0", "--keep", "101d")
	prune("5,0,0", "--keep", "99d", "--dry-run", "--export", file)
	require.NoFileExists(t, file)
	prune("0,0,0", "--keep", "99d", "--keep-entries", "10")

	require.Equal(t, cli.ExitOK, fencectl(t, "history", "hold", "sku/1", "--reason", "case 7", "--database-url", dsn).Code)
	prune("0,0,0", "--keep", "99d")
	require.Equal(t, cli.ExitOK, fencectl(t, "history", "release", "sku/1", "--database-url", dsn).Code)

	require.NoError(t, os.WriteFile(file, []byte(`{"resource"`), 0o600), "a run that was cut off")
	prune("5,0,0", "--keep", "2376h", "--resource", "sku/?", "--export", file)
	prune("0,0,0", "--keep", "99d", "--export", file)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	unfinished, text, _ := strings.Cut(string(content), "\n")
	require.Equal(t, `{"resource"`, unfinished)
	var seqs []int
	for line := range strings.Lines(text) {
		var l struct{ Entry struct{ Seq int } }
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		if l.Entry.Seq > 0 {
			seqs = append(seqs, l.Entry.Seq)
		}
	}
	require.Equal(t, []int{1, 2, 3, 4, 5, 6}, seqs, "the claim stays too, as that of the next entries")
}

func TestHistoryPolicy_ShowsAndSets(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connect(t, dsn)
	require.NoError(t, execute(t, conn, oldHistory))
	policy := func(want string, entries, keys int, args ...string) {
		t.Helper()
		got := fencectl(t, append([]string{"history", "policy", "--database-url", dsn}, args...)...)
		require.Equal(t, ended(cli.ExitOK, tableOf("keep,keep_entries,keep_once\n"+want), ""), got)
		got = fencectl(t, "history", "prune", "--dry-run", "--database-url", dsn)
		require.Equal(t, ended(cli.ExitOK, tableOf(fmt.Sprintf("entries,rejections,once_keys\n%d,0,%d\n", entries, keys)), ""), got)
	}
	policy(",4,7d", 0, 0)
	policy("90d,4,7d", 5, 0, "--keep", "90d")
	policy("90d,3,7d", 6, 0, "--keep-entries", "3")
	policy("90d,3,36h", 6, 0, "--keep-once", "36h")
	require.NoError(t, execute(t, conn, "update fence.forget_clock set seen = now(), steady = now() - interval '8 days'"))
	policy("90d,3,36h", 6, 3)
	policy(",3,2d", 0, 3, "--off", "--keep-once", "2d")
	policy("1h,1,2d", 8, 3, "--keep", "1h", "--keep-entries", "1")
	got := fencectl(t, "history", "prune", "--database-url", dsn, "-o", "json")
	require.Equal(t, ended(cli.ExitOK, "{\n  \"entries\": 8,\n  \"rejections\": 0,\n  \"once_keys\": 3\n}\n", ""), got)
	policy("1h,1,2d", 0, 0)
}

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
		require.Equal(t, ended(code, tableOf(stdout), stderr), fencectl(t, append([]string{"history", "--database-url", dsn}, args...)...))
	}
	history(cli.ExitOK, "", "no resource is on hold\n", "holds")
	for _, name := range []string{"sku/11", "sku/*"} {
		history(cli.ExitInconclusive, "", "fencectl: no resource \""+name+"\" in schema fence; beside it are sku/1\n", "hold", name, "--reason", "case 7")
	}
	history(cli.ExitOK, "", "no resource is on hold\n", "holds")

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
