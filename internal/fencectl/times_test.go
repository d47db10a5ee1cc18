package fencectl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
)

func TestInstant_TakesTheFormsThatPeopleWrite(t *testing.T) {
	t.Parallel()
	at := func(hour, minute, second int) time.Time {
		return time.Date(2026, 11, 23, hour, minute, second, 0, time.UTC)
	}
	for text, want := range map[string]time.Time{
		"2026-11-23":                    at(0, 0, 0),
		"2026-11-23 10":                 at(10, 0, 0),
		"2026-11-23T10:30":              at(10, 30, 0),
		"2026-11-23 10:30:15":           at(10, 30, 15),
		"2026-11-23T10Z":                at(10, 0, 0),
		"2026-11-23T10:30:15Z":          at(10, 30, 15),
		"2026-11-23T12:30+02:00":        at(10, 30, 0),
		"2026-11-23T12:30:15.000+02:00": at(10, 30, 15),
	} {
		var i instant
		require.NoError(t, i.Set(text))
		require.Equal(t, want, time.Time(i).UTC(), text)
	}
	for text, ago := range map[string]time.Duration{"now": 0, "12h": 12 * time.Hour, "90d": 90 * day} {
		var i instant
		require.NoError(t, i.Set(text))
		require.WithinDuration(t, time.Now().Add(-ago), time.Time(i), time.Minute, text)
	}
	for _, text := range []string{"", "soon", "10:30", "0s", "-1h", "2026-13-01", "2026-11-23T25", "2026-11-23  10:30", "2026-11-23 10:30 CET"} {
		var i instant
		require.ErrorContains(t, i.Set(text), "is not a time", text)
	}
}

// A table is protected in audit mode first, then enforced, listed, and restored.
func TestProtect_FromAuditToEnforce(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connect(t, dsn)
	require.NoError(t, execute(t, conn, "create table stock (sku int primary key, qty int)"))
	run := func(code int, stdout, stderr string, args ...string) {
		t.Helper()
		require.Equal(t, ended(code, tableOf(stdout), stderr), fencectl(t, append(args, "--database-url", dsn)...))
	}
	run(cli.ExitOK, "", "no table is protected\n", "protected")
	run(cli.ExitOK, "table,mode,resource\nstock,audit,'sku/' || sku\n", "", "protect", "stock", "--resource", "'sku/' || sku")
	require.NoError(t, execute(t, conn, "set application_name = 'nightly import'; insert into stock values (1, 1); update stock set qty = 2"))
	require.NoError(t, execute(t, conn, "update fence.unguarded_write set at = '2026-01-02 03:04:05Z'"))
	run(cli.ExitOK, "table,mode,resource,problem,unguarded,last\nstock,audit,'sku/' || sku,,1,2026-01-02T03:04:05Z\n", "", "protected")
	run(cli.ExitOK, "table,resource,kind,role,application,records,first,last\nstock,sku/1,insert,postgres,nightly import,1,2026-01-02T03:04:05Z,2026-01-02T03:04:05Z\n", "", "protected", "--writes")
	run(cli.ExitOK, "table,mode,resource\nstock,enforce,'sku/' || sku\n", "", "protect", "stock", "--mode", "enforce")
	require.ErrorContains(t, execute(t, conn, "update stock set qty = 3"), "ZF015")

	run(cli.ExitOK, "table,unprotected\nstock,true\n", "", "unprotect", "stock")
	run(cli.ExitOK, "table,unprotected\nstock,false\n", "nothing to do: stock is not protected; see \"fencectl protected\"\n", "unprotect", "stock")
	for _, args := range [][]string{{"stock"}, {"stock", "--resource", "sku", "--mode", "warn"}, {"nostock", "--resource", "sku"}, {"stock", "--resource", "stock.sku"}} {
		got := fencectl(t, append(append([]string{"protect"}, args...), "--database-url", dsn)...)
		require.Equal(t, cli.ExitUsage, got.Code, args)
		require.NotContains(t, got.Stderr, "migrate up", args)
	}
	require.Contains(t, fencectl(t, "protect", "stock", "--mode", "warn", "--database-url", dsn).Stderr, `want one of audit, enforce`)
	require.Contains(t, fencectl(t, "protect", "stock", "--resource", "sku", "--schema", "fence_2", "--database-url", dsn).Stderr, "migrate up")
}
