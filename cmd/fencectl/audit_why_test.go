package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

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
