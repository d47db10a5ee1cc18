package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
)

// tamper executes SQL while the triggers of history and fences are off.
func tamper(t *testing.T, dsn, sql string) {
	t.Helper()
	require.NoError(t, execute(t, connect(t, dsn), `alter table fence.history disable trigger protect_history; alter table fence.history disable trigger protect_kept_history; `+sql+`;
		alter table fence.history enable always trigger protect_history; alter table fence.history enable always trigger protect_kept_history`))
}

func TestAuditVerify_SaysWhatItFinds(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	verify := func(args ...string) []string {
		return append([]string{"audit", "verify", "--database-url", dsn}, args...)
	}
	got := fencectl(t, verify()...)
	require.Equal(t, cli.ExitInconclusive, got.Code)
	require.Contains(t, got.Stderr, "there is nothing to verify: no resource")
	write(t, dsn, "sku/1", "sku/1", "sku/2")
	got = fencectl(t, verify()...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Empty(t, got.Stdout)
	require.Contains(t, got.Stderr, "verified 5 entries of 2 resources, 0 kept operations, 0 anchored heads, as of ")
	got = fencectl(t, verify("--resource", "order/*")...)
	require.Equal(t, cli.ExitInconclusive, got.Code)
	require.Contains(t, got.Stderr, `no resource matches "order/*"`)

	file := filepath.Join(t.TempDir(), "export")
	require.Equal(t, ended(cli.ExitOK, "resources,entries\n2,5\n", ""), fencectl(t, "audit", "export", "--database-url", dsn, "--out", file, "-o", "csv"))
	tamper(t, dsn, "update fence.history set tx = 5 where seq = 3")
	got = fencectl(t, verify("-o", "csv")...)
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stdout, "kind,resource,position,text,expected,found\nchanged entry,sku/1,3,\"The entry isn't what was recorded,")
	require.Contains(t, got.Stderr, "the history is not as Fencekit wrote it: 2 findings", "the fence has another transaction, too")
	got = fencectl(t, verify("-o", "json", "--max-findings", "1")...)
	var report audit.Report
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &report), got.Stdout)
	require.EqualValues(t, 2, report.TotalFindings)
	require.Len(t, report.Findings, 1)
	require.EqualValues(t, 5, report.Entries)
	require.Equal(t, cli.ExitOK, fencectl(t, verify("--resource", "sku/2")...).Code)
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "verify", "--export", file).Code)
	again := fencectl(t, "audit", "export", "--database-url", dsn)
	require.Equal(t, cli.ExitOK, again.Code, again.Stderr)
	other := filepath.Join(t.TempDir(), "export")
	require.NoError(t, os.WriteFile(other, []byte(again.Stdout), 0o600))
	got = fencectl(t, "audit", "verify", "--export", other, "--export", file, "-o", "jsonl")
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Contains(t, got.Stdout, `"resource":"sku/1","seq":3`)
}

func TestAuditVerify_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.WriteFile(taken, []byte("hello\n"), 0o600))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"verify", "--max-findings", "0"}, cli.ExitUsage, "at least 1"},
		{[]string{"verify", "--export", filepath.Join(dir, "none")}, cli.ExitUsage, "no such file"},
		{[]string{"verify", "--export", taken}, cli.ExitViolated, "1 finding"},
		{[]string{"verify", "--key", taken}, cli.ExitUsage, "give --log or --proof as well"},
		{[]string{"verify", "--checkpoint", taken}, cli.ExitUsage, "give --log as well"},
		{[]string{"verify", "--proof", taken}, cli.ExitUsage, "--key is missing"},
		{[]string{"verify", "--log", taken}, cli.ExitUsage, "--key is missing"},
		{[]string{"verify", "--schema", "other"}, cli.ExitNotReady, "fencectl migrate up"},
		{[]string{"verify", "sku/1"}, cli.ExitUsage, "takes no arguments"},
		{[]string{"export", "--out", taken}, cli.ExitUsage, "exists, and is never overwritten"},
		{[]string{"export", "--out", filepath.Join(dir, "none", "x")}, cli.ExitUsage, "no such file"},
		{[]string{"export", "--resource", "nosuch", "--out", filepath.Join(dir, "x")}, cli.ExitInconclusive, `no resource matches "nosuch"`},
		{[]string{"export", "--schema", "other", "--out", filepath.Join(dir, "x")}, cli.ExitNotReady, "fencectl migrate up"},
	} {
		got := fencectl(t, append([]string{"audit", "--database-url", dsn}, c.args...)...)
		require.Equal(t, c.code, got.Code, "%v: %s", c.args, got.Stderr)
		require.Contains(t, got.Stderr, c.says)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "an export that failed leaves nothing")
}
