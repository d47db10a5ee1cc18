package schemadef

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func migrated(t *testing.T, schema string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(pgserver.Database(t))
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["search_path"] = "pg_catalog"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(t.Context(), pool, schema)
	require.NoError(t, err)
	return pool
}

func compare(t *testing.T, pool *pgxpool.Pool, schema string) []Difference {
	t.Helper()
	all, err := Compare(schema, func(sql string, columns int, each func(row []string)) error {
		rows, err := pool.Query(context.Background(), sql)
		require.NoError(t, err)
		row, places := make([]string, columns), make([]any, columns)
		for i := range row {
			places[i] = &row[i]
		}
		_, err = pgx.ForEachRow(rows, places, func() error { each(row); return nil })
		return err
	})
	require.NoError(t, err)
	return all
}

// All tables, views, triggers, functions and unique keys that the migrations make are compared, and equal.
func TestCompare_LeavesNothingOut(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{"fence", "guarded_2"} {
		pool := migrated(t, schema)
		require.Empty(t, compare(t, pool, schema))
		m, err := read(schema)
		require.NoError(t, err)
		var parts []Part
		for _, table := range m.tables {
			parts = append(parts, Part{"table", table, ""})
		}
		for part := range m.parts {
			parts = append(parts, part)
		}
		rows, err := pool.Query(t.Context(), `
			select 'table', relname::text, '' from pg_class where relnamespace = $1::text::regnamespace and relkind in ('r', 'p') union all
			select 'view', relname::text, '' from pg_class where relnamespace = $1::text::regnamespace and relkind = 'v' union all
			select 'function', proname::text, '' from pg_proc where pronamespace = $1::text::regnamespace union all
			select 'trigger', tgname::text, c.relname::text from pg_trigger join pg_class c on c.oid = tgrelid where relnamespace = $1::text::regnamespace and not tgisinternal union all
			select 'unique key', x.relname::text, c.relname::text from pg_index join pg_class c on c.oid = indrelid join pg_class x on x.oid = indexrelid
			 where c.relnamespace = $1::text::regnamespace and c.relkind = 'r' and indisunique union all
			select case contypid when 0 then 'table' else 'domain' end || ' constraint', conname, coalesce(c.relname, typname)
			  from pg_constraint left join pg_class c on c.oid = conrelid left join pg_type t on t.oid = contypid
			 where connamespace = $1::text::regnamespace and contype in ('c', 'f', 'x')`, schema)
		require.NoError(t, err)
		there, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Part])
		require.NoError(t, err)
		require.ElementsMatch(t, there, parts)
	}
}

// The statements of the migrations make again what is missing.
func TestCompare_ReturnsTheStatements(t *testing.T) {
	t.Parallel()
	pool := migrated(t, "fence")
	execute := func(sql string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	rows, err := pool.Query(t.Context(), "select oid::regprocedure::text from pg_proc where pronamespace = 'fence'::regnamespace")
	require.NoError(t, err)
	routines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for _, routine := range routines {
		execute("drop routine if exists " + routine + " cascade") // triggers and views go, too
	}
	gone := compare(t, pool, "fence")
	require.Greater(t, len(gone), len(routines))
	for _, d := range gone {
		require.Empty(t, d.Found)
		execute("set check_function_bodies = off; " + d.SQL)
		if d.Kind == "trigger" {
			execute("alter table fence." + d.Table + " enable always trigger " + d.Name)
		}
	}
	require.Empty(t, compare(t, pool, "fence"))
}
