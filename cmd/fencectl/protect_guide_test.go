//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// The guide's correction by hand goes through on an enforced table, under a lock of etcd and with an
// entry in the history.
func TestGuides_CorrectionByHand(t *testing.T) {
	t.Parallel()
	_, flags := onEtcd(t)
	dsn := migrated(t)
	conn := connect(t, dsn)
	require.NoError(t, execute(t, conn, "create table stock (sku int primary key, qty int); insert into stock values (42, 10)"))
	require.Equal(t, cli.ExitOK, fencectl(t, "protect", "stock", "--resource", "'sku/' || sku", "--mode", "enforce", "--database-url", dsn).Code)
	guide, err := os.ReadFile("../../docs/operate.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(guide), "**A correction by hand**")
	require.True(t, found)
	block := regexp.MustCompile("(?s)```sh\n(fencectl exec .*?)```\n\n```sql\n(.*?)```").FindStringSubmatch(section)
	require.NotNil(t, block)
	script := filepath.Join(t.TempDir(), "correction.sql")
	require.NoError(t, os.WriteFile(script, []byte(block[2]), 0o600))
	psql, err := pgserver.Program(t.Context(), "psql")
	require.NoError(t, err)

	words := strings.Fields(strings.NewReplacer("psql", psql, `"$FENCEKIT_DATABASE_URL"`, dsn, "correction.sql", script).Replace(block[1]))
	require.Equal(t, []string{"fencectl", "exec", "sku/42", "--"}, words[:4])
	got := fencectlProcess(t, nil, execArgs(flags, words[2], words[4:]...)...)
	require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
	require.NoError(t, execute(t, conn, `do $$ begin assert (select qty from stock) = 7 and (select array_agg(kind order by position) from fence.entry) = '{claim,write}',
		(select jsonb_agg(e) from fence.entry e)::text; end $$`))
}

// What a dump brings is restored: whole into an empty database, and without the definitions into one
// that has them, where notes of transactions of another server are without effect.
func TestGuides_DumpsOfProtectedTables(t *testing.T) {
	t.Parallel()
	from, empty := migrated(t), pgserver.Database(t)
	conn := connect(t, from)
	const table = "create table stock (sku int primary key, qty int)"
	require.NoError(t, execute(t, conn, table+"; insert into stock values (42, 10)"))
	require.Equal(t, cli.ExitOK, fencectl(t, "protect", "stock", "--resource", "'sku/' || sku", "--mode", "enforce", "--database-url", from).Code)
	// What a backend leaves behind that has made a guarded write.
	require.NoError(t, execute(t, conn, `alter table fence.pending_write disable trigger pending_write_sealed;
		insert into fence.pending_write select 1, '77', 3, 1, now(), array[id || ' sku/42'], '{}' from fence.protection;
		alter table fence.pending_write enable always trigger pending_write_sealed`))
	dump := filepath.Join(t.TempDir(), "shop.dump")
	run := func(program string, args ...string) {
		t.Helper()
		path, err := pgserver.Program(t.Context(), program)
		require.NoError(t, err)
		out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	run("pg_dump", "--format=custom", "--file="+dump, from)
	run("pg_restore", "--exit-on-error", "--dbname="+empty, dump)
	require.Equal(t, cli.ExitOK, fencectl(t, "protected", "--database-url", empty).Code)
	require.ErrorContains(t, execute(t, connect(t, empty), "update stock set qty = 1"), "ZF015")

	require.NoError(t, execute(t, connect(t, empty), "truncate fence.pending_write"))
	run("pg_restore", "--data-only", "--exit-on-error", "--table=pending_write", "--dbname="+empty, dump)
	require.Equal(t, cli.ExitOK, fencectl(t, "unprotect", "stock", "--database-url", empty).Code)
	require.NoError(t, execute(t, connect(t, empty), "truncate stock"))
	run("pg_restore", "--data-only", "--exit-on-error", "--table=stock", "--dbname="+empty, dump)
	require.Equal(t, cli.ExitOK, fencectl(t, "protect", "stock", "--resource", "'sku/' || sku", "--mode", "enforce", "--database-url", empty).Code)
	require.ErrorContains(t, execute(t, connect(t, empty), "update stock set qty = 1"), "ZF015")
}
