package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

func TestAuditWhy_ExplainsOnATerminalInJSONAndHTML(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	term := clitest.NewTerminal(t)
	var stderr bytes.Buffer
	html := filepath.Join(t.TempDir(), "why.html")
	require.Equal(t, cli.ExitOK, cli.Run(t.Context(), newRoot(), []string{"audit", "why", "sku/42", "--database-url", dsn, "--html", html}, term.TTY, &stderr), stderr.String())
	term.Close()
	lines := term.Lines()
	require.Equal(t, "worker-a/0011223344556677 (token 118) was rejected 2 times, because", lines[2])
	for _, line := range lines {
		require.LessOrEqual(t, len(line), clitest.Columns)
	}
	page, err := os.ReadFile(html)
	require.NoError(t, err)
	require.Contains(t, string(page), "<svg")

	got := fencectl(t, "audit", "why", "sku/42", "--op-id", "order-2", "--database-url", dsn, "-o", "json")
	require.Equal(t, cli.ExitOK, got.Code)
	var x struct{ Effect, Conclusion string }
	require.NoError(t, json.Unmarshal([]byte(got.Stdout), &x))
	require.Equal(t, "yes", x.Effect)
	got = fencectl(t, "audit", "why", "sku/42", "--position", "99", "--database-url", dsn, "-o", "csv")
	require.Equal(t, ended(cli.ExitInconclusive, "resource,title,effect,conclusion\nsku/42,No record,unknown,sku/42 has no entry at position 99.\n", "fencectl: there is no record\n"), got)
	got = fencectl(t, "audit", "why", "sku/42", "--database-url", dsn, "--html", t.TempDir())
	require.Equal(t, cli.ExitInconclusive, got.Code)
	require.Contains(t, got.Stderr, "can't write the page (--html)")
}

// As a process.
func TestAuditWhy_ExitCodes(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	for args, c := range map[string]struct {
		code int
		says string
	}{
		"sku/42":                       {cli.ExitOK, ""},
		"sku/42 --rejection 1":         {cli.ExitOK, ""},
		"sku/42 --token 131":           {cli.ExitOK, ""},
		"sku/99":                       {cli.ExitInconclusive, "there is no record"},
		"sku/42 --op-id none":          {cli.ExitInconclusive, "there is no record"},
		"":                             {cli.ExitUsage, "takes one argument, RESOURCE"},
		"sku/42 --token 0":             {cli.ExitUsage, `--token is "0", want a number from 1`},
		"sku/42 --rejection -1":        {cli.ExitUsage, `--rejection is "-1"`},
		"sku/42 --position x":          {cli.ExitUsage, `"x"`},
		"sku/42 --op-id=":              {cli.ExitUsage, `--op-id is "", want an id`},
		"sku/42 --token 1 --op-id x":   {cli.ExitUsage, "want one of --rejection, --token, --op-id and --position"},
		"sku/42 --schema other":        {cli.ExitNotReady, "fencectl migrate up"},
		"sku/42 --timeout 0s":          {cli.ExitUsage, "--timeout"},
		"sku/42 --op-id x --token abc": {cli.ExitUsage, "abc"},
	} {
		cmd := clitest.Child(t, nil, append([]string{"audit", "why", "--database-url", dsn}, strings.Fields(args)...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.Equal(t, c.code, clitest.ExitCode(t, cmd.Run), "%s: %s", args, stderr.String())
		require.Contains(t, stderr.String(), c.says, args)
		require.Equal(t, c.code <= cli.ExitInconclusive, stdout.Len() > 0, args)
	}
}

func TestAuditWhy_NeedsAName(t *testing.T) {
	t.Parallel()
	got := fencectl(t, "audit", "why", "", "--database-url", "postgres://127.0.0.1:1/none")
	require.Equal(t, cli.ExitUsage, got.Code)
	require.Contains(t, got.Stderr, "RESOURCE is empty, want a name")
}
