package fencectl

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

// readers are the commands that read the record.
func readers(t *testing.T) [][]string {
	etcd := etcdserver.Shared(t).Endpoint()
	return [][]string{
		{"audit", "export"}, {"audit", "verify"},
		{"epoch", "show", "--etcd-endpoints", etcd},
		{"epoch", "show", "--locks", "postgres"}, {"locks", "list", "--locks", "postgres"}, {"locks", "queue", "r", "--locks", "postgres"},
		{"locks", "evictions", "--locks", "postgres"}, {"locks", "evict", "r", "--expected-token", "1", "--reason", "x", "--locks", "postgres"},
		{"history", "holds"}, {"history", "policy"}, {"history", "prune", "--dry-run", "--keep", "1h"}, {"history", "release", "sku/99"},
		{"migrate", "status"}, {"migrate", "up"},
		{"protected"}, {"protected", "--writes"},
		{"tokens", "history", "sku/42"}, {"tokens", "history", "*", "--kind", "rejection"},
	}
}

// A full disk says nothing about the database.
func TestOutput_ThatCantBeWrittenIsInconclusive(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	full, err := os.Open(os.Args[0]) // can't be written to
	require.NoError(t, err)
	defer full.Close()
	for _, args := range [][]string{{"audit", "export"}, {"tokens", "history", "*", "-o", "json"}, {"migrate", "status"}} {
		var stderr strings.Builder
		code := cli.Run(t.Context(), newRoot(), append(args, "--database-url", dsn), full, &stderr)
		require.Equal(t, cli.ExitInconclusive, code, "%v: %s", args, stderr.String())
		require.Contains(t, stderr.String(), "write "+full.Name())
	}
}

// Row-level security was turned on for each table, as an event trigger of the database does. The owner
// still sees all rows until it is forced. No command takes hidden rows for an empty record.
func TestReads_SayThatRowsAreHidden(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	admin := connect(t, dsn)
	owner, reader := newRole(t, dsn, "login"), newRole(t, dsn, "login")
	t.Cleanup(func() { // else the roles can't be dropped
		_, err := admin.Exec(context.Background(), fmt.Sprintf("reassign owned by %s to current_user; drop owned by %[1]s, %s", owner, reader))
		require.NoError(t, err)
	})
	require.NoError(t, execute(t, admin, fmt.Sprintf("grant create on database %s to %s", pgx.Identifier{admin.Config().Database}.Sanitize(), owner)))
	run := func(role string, args ...string) (code int, stderr string) {
		got := fencectl(t, append(args, "--database-url", with(t, with(t, dsn, "user", role), "password", "pw"))...)
		return got.Code, got.Stderr
	}
	code, stderr := run(owner, "migrate", "up", "--reader-role", reader)
	require.Equal(t, cli.ExitOK, code, stderr)
	sellIn(t, dsn)
	require.NoError(t, execute(t, admin, "create table public.stock (sku text); alter table public.stock owner to "+owner))
	code, stderr = run(owner, "protect", "public.stock", "--resource", "sku")
	require.Equal(t, cli.ExitOK, code, stderr)

	all := readers(t)
	endings := func() (codes []int, says []string) {
		for _, args := range all {
			for _, role := range []string{owner, reader} {
				code, stderr := run(role, args...)
				codes, says = append(codes, code), append(says, fmt.Sprint(args, ": ", stderr))
			}
		}
		return codes, says
	}
	plain, says := endings()
	for i, code := range plain {
		require.True(t, i%2 == 1 || code != cli.ExitNotReady, says[i])
	}
	for _, how := range []string{"enable", "force"} {
		require.NoError(t, execute(t, admin, fmt.Sprintf(`do $$ declare c regclass; begin
			for c in select oid from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'r' loop
				execute format('alter table %%s %s row level security', c);
			end loop; end $$`, how)))
		codes, says := endings()
		for i, code := range codes {
			if plain[i] == cli.ExitNotReady || how == "enable" && code == plain[i] { // it may not read that anyway; or it reads by views, which read for the owner
				continue
			}
			require.Equal(t, cli.ExitNotReady, code, "%s: %s", how, says[i])
			require.Contains(t, says[i], "row-level security would hide rows")
			require.NotContains(t, says[i], "Connect as another role")
		}
	}

	require.NoError(t, execute(t, admin, `do $$ declare c regclass; begin
		for c in select oid from pg_class where relnamespace = 'fence'::regnamespace and relkind = 'r' and relname <> 'unguarded_write' loop
			execute format('alter table %s disable row level security', c);
		end loop; end $$`))
	code, stderr = run(owner, "protected", "--writes")
	require.Equal(t, cli.ExitNotReady, code, stderr)
}
