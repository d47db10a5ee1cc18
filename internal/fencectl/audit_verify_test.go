package fencectl

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
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
	require.Contains(t, got.Stderr, "verified 6 entries of 2 resources, 0 kept operations, 0 anchored heads, as of ")
	got = fencectl(t, verify("--resource", "order/*")...)
	require.Equal(t, cli.ExitInconclusive, got.Code)
	require.Contains(t, got.Stderr, `no resource matches "order/*"`)

	file := filepath.Join(t.TempDir(), "export")
	require.Equal(t, ended(cli.ExitOK, tableOf("resources,entries\n2,6"), ""), fencectl(t, "audit", "export", "--database-url", dsn, "--out", file))
	tamper(t, dsn, "update fence.history set tx = 5 where seq = 4")
	got = fencectl(t, verify()...)
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Regexp(t, "^KIND +RESOURCE +POSITION +TEXT +EXPECTED +FOUND\nchanged entry +sku/1 +4 +The entry isn't what was recorded,", got.Stdout)
	require.Contains(t, got.Stderr, "the history is not as Fencekit wrote it: 2 findings", "the fence has another transaction, too")
	got = fencectl(t, verify("-o", "json")...)
	var report audit.Report
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &report), got.Stdout)
	require.EqualValues(t, 2, report.TotalFindings)
	require.Len(t, report.Findings, 2)
	require.EqualValues(t, 6, report.Entries)
	require.Equal(t, cli.ExitOK, fencectl(t, verify("--resource", "sku/2")...).Code)
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "verify", "--export", file).Code)
	again := fencectl(t, "audit", "export", "--database-url", dsn)
	require.Equal(t, cli.ExitOK, again.Code, again.Stderr)
	other := filepath.Join(t.TempDir(), "export")
	require.NoError(t, os.WriteFile(other, []byte(again.Stdout), 0o600))
	got = fencectl(t, "audit", "verify", "--export", other, "--export", file)
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Regexp(t, " sku/1 +4 ", got.Stdout)
}

func TestAuditVerify_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.WriteFile(taken, []byte("hello\n"), 0o600))
	requireEndings(t, []string{"audit", "--database-url", dsn}, []ending{
		{[]string{"verify", "--export", filepath.Join(dir, "none")}, cli.ExitUsage, "no such file"},
		{[]string{"verify", "--export", taken}, cli.ExitViolated, "1 finding"},
		{[]string{"verify", "--key", taken}, cli.ExitUsage, "give --log as well"},
		{[]string{"verify", "--checkpoint", taken}, cli.ExitUsage, "give --log as well"},
		{[]string{"verify", "--log", taken}, cli.ExitUsage, "--key is missing"},
		{[]string{"verify", "--schema", "other"}, cli.ExitNotReady, "fencectl migrate up"},
		{[]string{"export", "--out", taken}, cli.ExitUsage, "exists, and is never overwritten"},
		{[]string{"export", "--out", filepath.Join(dir, "none", "x")}, cli.ExitUsage, "no such file"},
		{[]string{"export", "--resource", "nosuch", "--out", filepath.Join(dir, "x")}, cli.ExitInconclusive, `no resource matches "nosuch"`},
		{[]string{"export", "--schema", "other", "--out", filepath.Join(dir, "x")}, cli.ExitNotReady, "fencectl migrate up"},
	})
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1, "an export that failed leaves nothing")
}

func TestAuditVerify_ReadsAnExportFromStdin(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	write(t, dsn, "sku/1")
	export := fencectl(t, "audit", "export", "--database-url", dsn)
	root := newRoot()
	root.SetIn(strings.NewReader(export.Stdout))
	got := clitest.Run(t, root, "audit", "verify", "--export", "-", "-o", "json")
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "verified 2 entries of 1 resource")
	var report map[string]any
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &report))
	require.Equal(t, []any{}, report["findings"])
	require.Equal(t, []any{}, report["unproven"])
}

// verify verifies the database, or an export, with the log's public key.
func (f anchorFiles) verify(t *testing.T, args ...string) clitest.Ending {
	t.Helper()
	return fencectl(t, append([]string{"audit", "verify", "--database-url", f.dsn, "--key", f.key + ".pub"}, args...)...)
}

// shorten removes the last entry of sku/1, and puts its fence back to the one before: a history
// that fits in itself.
const shorten = `delete from fence.history h using fence.resource r where r.id = h.resource and r.name = 'sku/1' and h.seq = r.seq;
	update fence.resource r set seq = e.seq, tx = e.tx, hash = e.hash, sealed = case e.kind when 'w' then e.xid else '0' end from fence.history e where e.resource = r.id and r.name = 'sku/1' and e.seq = r.seq - 1`

// The log finds what a database or an export lacks.
func TestAuditVerify_AgainstTheLog(t *testing.T) {
	t.Parallel()
	f := newAnchorFiles(t)
	write(t, f.dsn, "sku/1", "sku/2")
	require.Equal(t, cli.ExitOK, f.anchor(t).Code)
	whole, short := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "short")
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "export", "--database-url", f.dsn, "--resource", "sku/1", "--out", whole).Code)
	got := f.verify(t, "--log", f.log)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.Contains(t, got.Stderr, "2 anchored heads")

	tamper(t, f.dsn, shorten)
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "export", "--database-url", f.dsn, "--out", short).Code)
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "verify", "--export", short).Code, "it fits in itself")
	for _, where := range [][]string{nil, {"--export", short}} {
		got = f.verify(t, append(where, "--log", f.log)...)
		require.Equal(t, cli.ExitViolated, got.Code, got.Stderr)
		require.Contains(t, got.Stdout, "older state")
	}
	require.Equal(t, cli.ExitOK, f.verify(t, "--export", whole, "--log", f.log).Code)
}

func TestAuditVerify_SaysWhetherTheHistoryHasAReceipt(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	var r storage.Receipt
	g := guardtest.New(t, store)
	require.NoError(t, guard.Do(t.Context(), g, "sku/1", func(context.Context, pgx.Tx) error { return nil }, guard.Receipt(&r)))
	require.NoError(t, g.Close(t.Context()))
	file, exported := filepath.Join(t.TempDir(), "receipt"), filepath.Join(t.TempDir(), "export")
	require.NoError(t, os.WriteFile(file, []byte(r.String()+"\n"+r.String()+"\n"), 0o600))
	require.Equal(t, cli.ExitOK, fencectl(t, "audit", "export", "--database-url", dsn, "--out", exported).Code)
	differs, later := slices.Clone(r), slices.Clone(r)
	differs[0].Tx++
	later[0].Seq++
	for _, where := range [][]string{{"--database-url", dsn}, {"--export", exported}} {
		verify := func(args ...string) clitest.Ending {
			return fencectl(t, slices.Concat([]string{"audit", "verify"}, where, args)...)
		}
		got := verify("--receipt", r.String())
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		require.Regexp(t, `^RESOURCE +POSITION +STATUS +RECEIPT +HISTORY\nsku/1 +2 +valid +token `, got.Stdout)
		require.Equal(t, 3, strings.Count(verify("--receipt", file).Stdout, "\n"))
		got = verify("--receipt", differs.String())
		require.Equal(t, cli.ExitViolated, got.Code)
		require.Regexp(t, `sku/1 +2 +differs `, got.Stdout)
		got = verify("--receipt", later.String())
		require.Equal(t, cli.ExitViolated, got.Code)
		require.Regexp(t, `sku/1 +3 +not there `, got.Stdout)
		require.Equal(t, cli.ExitInconclusive, verify("--receipt", r.String(), "--resource", "other").Code)
		got = verify("--receipt", r.String()[1:])
		require.Equal(t, cli.ExitUsage, got.Code)
		require.Contains(t, got.Stderr, "a receipt is fencekit1 POSITION:TRANSACTION:HASH:GRANT")
	}
}
