package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

// A table is protected in audit mode first, then enforced, listed, and restored.
func TestProtect_FromAuditToEnforce(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connect(t, dsn)
	require.NoError(t, execute(t, conn, "create table stock (sku int primary key, qty int)"))
	run := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		require.Equal(t, ended(code, stdout, stderr), fencectl(t, append(args, "--database-url", dsn, "-o", "csv")...))
	}
	run(cli.ExitOK, "table,mode,resource,intact,unguarded,last\n", "no table is protected\n", "protected")
	run(cli.ExitOK, "table,mode,resource\nstock,audit,'sku/' || sku\n", "", "protect", "stock", "--resource", "'sku/' || sku")
	require.NoError(t, execute(t, conn, "insert into stock values (1, 1); update stock set qty = 2"))
	require.NoError(t, execute(t, conn, "update fence.unguarded_write set at = '2026-01-02 03:04:05Z'"))
	run(cli.ExitOK, "table,mode,resource,intact,unguarded,last\nstock,audit,'sku/' || sku,true,1,2026-01-02T03:04:05Z\n", "", "protected")
	run(cli.ExitOK, "table,resource,kind,role,count,first,last\nstock,sku/1,insert,postgres,1,2026-01-02T03:04:05Z,2026-01-02T03:04:05Z\n", "", "protected", "--writes")
	run(cli.ExitOK, "table,mode,resource\nstock,enforce,'sku/' || sku\n", "", "protect", "stock", "--resource", "'sku/' || sku", "--mode", "enforce")
	require.ErrorContains(t, execute(t, conn, "update stock set qty = 3"), "ZF015")
	require.NoError(t, execute(t, conn, "alter table stock disable trigger fencekit_protect"))
	run(cli.ExitViolated, "table,mode,resource,intact,unguarded,last\nstock,enforce,'sku/' || sku,false,1,2026-01-02T03:04:05Z\n",
		"fencectl: stock is not fully protected: stock lacks a trigger, or it is not enabled always; run \"fencectl protect\" again\n", "protected")
	run(cli.ExitOK, "table,unprotected\nstock,true\n", "", "unprotect", "stock")
	run(cli.ExitOK, "table,unprotected\nstock,false\n", "nothing to do: stock is not protected; see \"fencectl protected\"\n", "unprotect", "stock")
	require.Equal(t, cli.ExitUsage, fencectl(t, "protect", "stock", "--database-url", dsn).Code)
	require.Equal(t, cli.ExitUsage, fencectl(t, "protect", "stock", "--resource", "sku", "--mode", "warn", "--database-url", dsn).Code)
	require.Equal(t, cli.ExitUsage, fencectl(t, "protect", "stocks", "--resource", "sku", "--database-url", dsn).Code)
}
