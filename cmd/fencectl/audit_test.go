package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// claimed returns a database with one claim, made now.
func claimed(t *testing.T) (dsn string) {
	t.Helper()
	dsn = migrated(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	_, err = store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{Resource: "sku/42", Epoch: 1, Token: 7, Holder: "worker-a/00"}})
	require.NoError(t, err)
	return dsn
}

// As a process.
func TestAuditReport_ExitCodes(t *testing.T) {
	t.Parallel()
	dsn := claimed(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--since", "1h", "--until", "2999-01-01"}, cli.ExitOK, ""},
		{[]string{"--since", "1h", "--until", "2999-01-01", "--resource", "skew/*"}, cli.ExitInconclusive, "fencectl: no resource matches"},
		{[]string{"--since", "2998-01-01", "--until", "2999-01-01"}, cli.ExitInconclusive, "fencectl: the period had not begun"},
		{[]string{"--since", "2h", "--until", "1h"}, cli.ExitInconclusive, "fencectl: the record begins after the period"},
		{[]string{"--since", "1h"}, cli.ExitUsage, "needs --since and --until"},
		{[]string{"--until", "1h"}, cli.ExitUsage, "needs --since and --until"},
		{[]string{"--since", "1h", "--until", "2h"}, cli.ExitUsage, "want it after --since"},
		{[]string{"--since", "3 March", "--until", "1h"}, cli.ExitUsage, "is not a time"},
		{[]string{"--since", "2h", "--until", "1h", "sku/42"}, cli.ExitUsage, "takes no arguments besides flags"},
		{[]string{"--since", "2h", "--until", "1h", "--schema", "other"}, cli.ExitNotReady, "fencectl migrate up"},
	} {
		cmd := clitest.Child(t, nil, append([]string{"audit", "report", "--database-url", dsn}, c.args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		require.Equal(t, c.code, clitest.ExitCode(t, cmd.Run), "%s: %s", c.args, stderr.String())
		require.Contains(t, stderr.String(), c.says, c.args)
		require.Equal(t, c.code < cli.ExitNotReady, stdout.Len() > 0, c.args)
	}
	require.NoError(t, execute(t, connect(t, dsn), "create table stock (sku int); select fence.protect_table('stock', '''sku/'' || sku', true); insert into stock values (42)"))
	html := filepath.Join(t.TempDir(), "report.html")
	got := fencectl(t, "audit", "report", "--database-url", dsn, "--since", "1h", "--until", "2999-01-01", "--html", html)
	require.Contains(t, string(read(t, html)), "<h2>Writes without a guard</h2>")
	require.Equal(t, cli.ExitViolated, got.Code)
	require.Equal(t, "fencectl: 1 write without a guard: \"fencectl protected --writes\" shows them\n", got.Stderr)
	require.Contains(t, got.Stdout, "Yes: 1 write was made without a guard")
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
		"sku/42 --token 0":             {cli.ExitUsage, `--token is "0"`},
		"sku/42 --rejection -1":        {cli.ExitUsage, `--rejection is "-1"`},
		"sku/42 --position x":          {cli.ExitUsage, `"x"`},
		"sku/42 --op-id=":              {cli.ExitUsage, `--op-id is ""`},
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
