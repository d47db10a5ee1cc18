package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/record"
)

// A log has more resources than the export of one of them: that is no pruning.
func TestAuditVerify_CountsHeadsThatTheExportLeavesOut(t *testing.T) {
	t.Parallel()
	f := newAnchorFiles(t)
	write(t, f.dsn, "sku/1", "sku/2", "sku/3")
	require.Equal(t, cli.ExitOK, f.anchor(t).Code)
	for pattern, says := range map[string]string{
		"*":     ", 3 anchored heads",
		"sku/?": ", 3 anchored heads",
		"sku/1": "; 2 anchored heads are of resources that the export leaves out",
	} {
		export := fencectl(t, "audit", "export", "--database-url", f.dsn, "--resource", pattern)
		path := filepath.Join(t.TempDir(), "export")
		require.NoError(t, os.WriteFile(path, []byte(export.Stdout), 0o600))
		got := fencectl(t, "audit", "verify", "--export", path, "--log", f.log, "--key", f.key+".pub")
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		require.Contains(t, got.Stderr, says)
		require.NotContains(t, got.Stderr, "pruned")
	}
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

func TestAuditVerify_SaysWhyThereIsNothingToVerify(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	write(t, dsn, "sku/1", "sku/1", "sku/1")
	dir := t.TempDir()
	empty, pruned := filepath.Join(dir, "empty"), filepath.Join(dir, "pruned")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	asOfPrune(t, fencectl(t, "audit", "export", "--database-url", dsn).Stdout, pruned)
	for path, says := range map[string]string{
		empty:  empty + " is empty",
		pruned: "no more than the export of a prune: " + pruned + "; give the export of the database too",
	} {
		got := fencectl(t, "audit", "verify", "--export", path)
		require.Equal(t, ended(cli.ExitInconclusive, "", "fencectl: "+says+"\n"), got)
	}
}

// asOfPrune writes the entries of an export as a prune does.
func asOfPrune(t *testing.T, export, path string) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	out, err := record.NewWriter(file, record.Begin{Of: record.OfPrune})
	require.NoError(t, err)
	in := record.NewReader(strings.NewReader(export))
	for l, err := in.Next(); err == nil; l, err = in.Next() {
		switch {
		case l.Resource != nil:
			require.NoError(t, out.Write(&record.Line{Resource: &record.Resource{Number: l.Resource.Number, Name: l.Resource.Name, To: 2}}))
		case l.Entry != nil && l.Entry.Seq <= 2:
			require.NoError(t, out.Write(l))
		}
	}
	require.NoError(t, out.End())
}
