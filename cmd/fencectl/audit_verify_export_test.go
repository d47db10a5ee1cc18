package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

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
