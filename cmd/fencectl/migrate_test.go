package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMigrateUp_AppliesEachOnce(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	n := len(known(t))
	table := "VERSION  NAME\n" + each(t, func(m postgres.Migration) string { return fmt.Sprintf("%-9d%s\n", m.Version, m.Name) })
	require.Equal(t, ended(cli.ExitOK, table, fmt.Sprintf("applied %d migrations to schema fence\n", n)),
		fencectl(t, "migrate", "up", "--database-url", dsn))
	require.Equal(t, ended(cli.ExitOK, "", "nothing to do: schema fence has every migration that this fencectl knows\n"),
		fencectl(t, "migrate", "up", "--database-url", dsn))
}

func TestMigrateStatus_MissingIsNotReadyAndChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	csv := "version,name,applied_at\n" + each(t, func(m postgres.Migration) string { return fmt.Sprintf("%d,%s,\n", m.Version, m.Name) })
	require.Equal(t, ended(cli.ExitNotReady, csv, fmt.Sprintf("fencectl: postgres: schema is not up to date: schema shop lacks %d migrations; run \"fencectl migrate up --schema shop\"\n", len(known(t)))),
		fencectl(t, "migrate", "status", "-o", "csv", "--schema", "shop", "--database-url", dsn))
	var schemas int
	require.NoError(t, connect(t, dsn).QueryRow(t.Context(), "select count(*) from pg_namespace where nspname in ('fence', 'shop')").Scan(&schemas))
	require.Zero(t, schemas)
}

// known returns the migrations there are.
func known(t *testing.T) []postgres.Migration {
	t.Helper()
	migrations, err := postgres.Migrations("")
	require.NoError(t, err)
	return migrations
}

// each returns what line says of each migration.
func each(t *testing.T, line func(postgres.Migration) string) (text string) {
	t.Helper()
	for _, m := range known(t) {
		text += line(m)
	}
	return text
}

// get is the SQL that "migrate get" prints.
func get(t *testing.T, args ...string) string {
	t.Helper()
	got := fencectl(t, append([]string{"migrate", "get"}, args...)...)
	require.Equal(t, ended(cli.ExitOK, got.Stdout, ""), got)
	return got.Stdout
}

// What another tool applies has to be what "migrate up" would have made, also
// in a session whose search_path offers functions of the same names; and that
// search_path has to be there afterwards, for the tool's own tables.
func TestMigrateGet_EqualsMigrateUp(t *testing.T) {
	t.Parallel()
	up, other := migrated(t), pgserver.Database(t)
	conn := connect(t, other)
	require.NoError(t, execute(t, conn, `create schema mine;
		create function mine.clock_timestamp() returns timestamptz language sql as 'select null::timestamptz'`))
	_, err := conn.Exec(t.Context(), "set search_path = mine, pg_catalog")
	require.NoError(t, err)
	require.NoError(t, execute(t, conn, get(t)+"; create table of_the_tool ()"))
	var place string
	require.NoError(t, conn.QueryRow(t.Context(), "select 'mine.of_the_tool'::regclass::text").Scan(&place))

	require.Equal(t, dumped(t, up), dumped(t, other))
	require.Equal(t, cli.ExitOK, fencectl(t, "migrate", "status", "--database-url", other).Code)
	require.Contains(t, fencectl(t, "migrate", "up", "--database-url", other).Stderr, "nothing to do")
	pool, err := pgxpool.New(t.Context(), other)
	require.NoError(t, err)
	defer pool.Close()
	store, err := postgres.NewStore(pool, &postgres.Config{AllowPreparedTransactions: true})
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()))
}

// dumped is all that schema fence holds but its rows.
func dumped(t *testing.T, dsn string) string {
	t.Helper()
	sql, err := exec.CommandContext(t.Context(), "pg_dump", "--schema-only", "--schema=fence", dsn).Output()
	require.NoError(t, err)
	require.Greater(t, strings.Count(string(sql), "CREATE "), 50)
	return regexp.MustCompile(`(?m)^\\.*`).ReplaceAllString(string(sql), "") // a random word for psql
}

func TestMigrateGet_OneOrAll(t *testing.T) {
	t.Parallel()
	all := get(t, "--all", "--schema", "shop")
	var want []script
	var texts []string
	for _, m := range known(t) {
		text := get(t, "--version", strconv.Itoa(m.Version), "--schema", "shop")
		want, texts = append(want, script{migration{m.Version, m.Name}, text}), append(texts, text)
	}
	require.Equal(t, strings.Join(texts, "\n"), all)
	require.Contains(t, texts[0], `create table "shop".resource (`)
	require.False(t, strings.Contains(all, "{{"))
	require.False(t, strings.Contains(all, `"fence"`))
	var list []script
	require.NoError(t, json.Unmarshal([]byte(get(t, "-o", "json", "--schema", "shop")), &list))
	require.Equal(t, want, list)
}

func TestMigrateUp_GrantsRoles(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	conn := connect(t, dsn)
	app, reader := fmt.Sprintf("app_%016x", rand.Uint64()), fmt.Sprintf("reader_%016x", rand.Uint64())
	defer func() {
		for _, role := range []string{app, reader} {
			require.NoError(t, execute(t, conn, "drop owned by "+role+"; drop role "+role))
		}
	}()
	grants := "role " + app + " may run guarded transactions in schema fence\nrole " + reader + " may read schema fence\n"
	for _, outcome := range []string{"applied ", "nothing to do"} {
		got := fencectl(t, "migrate", "up", "--app-role", app, "--reader-role", reader, "--database-url", dsn)
		require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		require.Contains(t, got.Stderr, grants+outcome)
	}
	var can bool
	const claim = "fence.claim(text[], bigint[], bigint[], text[], bigint, text, bigint[], bigint[])"
	require.NoError(t, conn.QueryRow(t.Context(), "select has_function_privilege($1, '"+claim+"', 'execute') and has_table_privilege($2, 'fence.history', 'select') "+
		"and not has_function_privilege($2, '"+claim+"', 'execute') and not has_table_privilege($1, 'fence.history', 'insert')", app, reader).Scan(&can))
	require.True(t, can)
}
