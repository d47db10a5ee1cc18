package fencectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// readers are the commands that read the record.
func readers(t *testing.T) [][]string {
	etcd := etcdserver.Shared(t).Endpoint()
	return [][]string{
		{"audit", "export"}, {"audit", "report", "--since", "2026-01-01", "--until", "now"}, {"audit", "verify"}, {"audit", "why", "sku/42"},
		{"epoch", "show", "--etcd-endpoints", etcd}, {"locks", "list", "--etcd-endpoints", etcd, "--etcd-prefix", "none"},
		{"epoch", "show", "--locks", "postgres"}, {"locks", "list", "--locks", "postgres"}, {"locks", "queue", "r", "--locks", "postgres"},
		{"locks", "evictions", "--locks", "postgres"}, {"locks", "evict", "r", "--expected-token", "1", "--reason", "x", "--locks", "postgres"},
		{"history", "holds"}, {"history", "policy"}, {"history", "prune", "--dry-run", "--keep", "1h"}, {"history", "release", "sku/99"},
		{"migrate", "status"}, {"migrate", "up"},
		{"protected"}, {"protected", "--writes"},
		{"tokens", "history", "sku/42"}, {"tokens", "history", "*", "--kind", "rejection"},
	}
}

// What each command writes can be read in each format, and how it ends is the same.
func TestOutput_OfEachCommandInEachFormat(t *testing.T) {
	dsn, dir := sold(t), t.TempDir()
	t.Setenv("FENCEKIT_DATABASE_URL", dsn)
	t.Setenv("FENCEKIT_ETCD_ENDPOINTS", etcdserver.Shared(t).Endpoint())
	require.NoError(t, execute(t, connect(t, dsn), "create table stock (sku text)"))
	left := map[string]bool{}
	var add func(*cobra.Command)
	add = func(cmd *cobra.Command) {
		left[cmd.CommandPath()] = !cmd.HasSubCommands()
		for _, below := range cmd.Commands() {
			add(below)
		}
	}
	add(newRoot())
	for _, runs := range []string{"exec", "audit keygen", "audit prove"} { // what they print has no rows
		delete(left, "fencectl "+runs)
	}
	for _, format := range []string{"table", "json"} {
		require.Equal(t, cli.ExitOK, fencectl(t, "audit", "keygen", "example.com/shop", "--out", dir+"/"+format).Code)
	}
	key, log := []string{"--key", dir + "/FORMAT"}, []string{"--log", dir + "/FORMAT.log"}
	for _, args := range slices.Concat(readers(t), [][]string{
		slices.Concat([]string{"audit", "anchor", "--begin"}, key, log),
		{"audit", "why", "none"}, {"doctor"}, {"epoch", "bump", "--reason", "x", "--dry-run"}, {"history", "hold", "sku/42", "--reason", "x"}, {"history", "holds"},
		{"locks", "evict", "none", "--expected-token", "1", "--reason", "x"}, {"locks", "evictions"}, {"locks", "queue", "none"},
		{"protect", "stock", "--resource", "sku"}, {"protected"}, {"unprotect", "stock"}, {"version"},
	}) {
		cmd, _, err := newRoot().Find(args)
		require.NoError(t, err)
		delete(left, cmd.CommandPath())
		codes := map[int]bool{}
		for format, read := range map[string]func(string) error{
			"table": func(string) error { return nil },
			"json": func(text string) error {
				decoder := json.NewDecoder(strings.NewReader(text))
				for {
					if err := decoder.Decode(new(any)); err != nil {
						return map[bool]error{false: err}[errors.Is(err, io.EOF)]
					}
				}
			},
		} {
			got := fencectl(t, append(strings.Split(strings.ReplaceAll(strings.Join(args, "\n"), "FORMAT", format), "\n"), "-o", format)...)
			codes[got.Code] = true
			if got.Stdout != "" && cmd.Name() != "export" {
				require.NoError(t, read(got.Stdout), "%v: %s", args, got.Stdout)
			}
		}
		require.Len(t, codes, 1, args)
	}
	for path, is := range left {
		require.False(t, is, path)
	}
}

// A full disk says nothing about the database.
func TestOutput_ThatCantBeWrittenIsInconclusive(t *testing.T) {
	t.Parallel()
	dsn := sold(t)
	full, err := os.Open(os.Args[0]) // can't be written to
	require.NoError(t, err)
	defer full.Close()
	for _, args := range [][]string{{"audit", "export"}, {"audit", "why", "sku/42"}, {"tokens", "history", "*", "-o", "json"}, {"migrate", "status"}} {
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
	code, stderr = run(owner, "audit", "report", "--since", "2026-01-01", "--until", "now")
	require.Equal(t, cli.ExitNotReady, code, stderr)
}
