package guardsql_test

import (
	"database/sql"
	"reflect"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// Each is selected as it is, and as NULL.
var values = []string{
	"true", "(-3)::int2", "7::int4", "9007199254740993::int8", "1.5::float4", "'NaN'::float8", "0.1::float8", "7::oid", "'7'::xid", "'7'::cid", "'7'::xid8",
	"1.50::numeric", "1.50::numeric(10,2)", "'NaN'::numeric", "'Infinity'::numeric", "'1.20'::money",
	"'naïve'::text", "'ab'::varchar(5)", "'ab'::varchar", "'ab'::char(5)", "'x'::\"char\"", "'n'::name", "''::text",
	`'\x00ff'::bytea`, `''::bytea`, "B'101'::bit(3)", "B'101'::varbit(8)", "B'101'::varbit",
	"'2026-02-28'::date", "'infinity'::date", "'0044-03-15 BC'::date", "'12:34:56.789'::time", "'12:34:56.789'::time(2)", "'12:34:56+02'::timetz",
	"'2026-02-28 12:34:56.789'::timestamp", "'-infinity'::timestamp", "'2026-02-28 12:34:56.789'::timestamp(1)",
	"'2026-02-28 12:34:56.789+02'::timestamptz", "'infinity'::timestamptz", "'2026-02-28 12:34:56.789+02'::timestamptz(0)",
	"'1 mon 2 days 03:04:05.678'::interval", "'1 day'::interval(2)", "'1 year'::interval year to month",
	"'4b1d7f6e-6a10-4b53-9d11-1f6cbb1fa7c2'::uuid", `'{"a": [1, null]}'::json`, `'{"a": [1, null]}'::jsonb`, "'null'::jsonb", `'"s"'::jsonb`, "'$.a'::jsonpath", "'<a/>'::xml",
	"'{1,NULL,3}'::int4[]", `'{"a b",NULL,""}'::text[]`, "'{{1,2},{3,4}}'::int8[]", "'{t,f}'::bool[]", "array['2026-02-28'::date]", "array['happy']::mood[]", "'{}'::uuid[]",
	"'happy'::mood", "'cents'::label", "row(1, 'a')", "row('a', 2)::pair",
	"'10.0.0.1/8'::inet", "'10.0.0.0/8'::cidr", "'08:00:2b:01:02:03'::macaddr", "'(1,2)'::point", "'<(1,2),3>'::circle",
	"'[1,5)'::int4range", "'[2026-01-01,)'::daterange", "'empty'::numrange", "'{[1,2),[3,4)}'::int4multirange",
	"'pg_class'::regclass", "'a b'::tsvector", "'a & b'::tsquery", "'(0,1)'::tid", "null",
}

const types = `
	create type mood as enum ('happy', 'sad');
	create domain label as text;
	create type pair as (a text, b int)`

type column struct {
	Value                     any
	Name, Type                string
	Nullable, NullableIsKnown bool
	Scan                      reflect.Type
}

func columns(t *testing.T, db *sql.DB, query string, args ...any) (columns []column) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	require.NoError(t, err, query)
	defer rows.Close()
	kinds, err := rows.ColumnTypes()
	require.NoError(t, err)
	for _, kind := range kinds {
		c := column{Name: kind.Name(), Type: kind.DatabaseTypeName(), Scan: kind.ScanType()}
		c.Nullable, c.NullableIsKnown = kind.Nullable()
		columns = append(columns, c)
	}
	var dest []any
	for i := range columns {
		dest = append(dest, &columns[i].Value)
	}
	require.True(t, rows.Next(), "%s: %v", query, rows.Err())
	require.NoError(t, rows.Scan(dest...), query)
	require.False(t, rows.Next())
	require.NoError(t, rows.Err())
	return columns
}

func TestValues_AreThoseOfStdlib(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(types)
	db := stdlib.OpenDBFromPool(w.pool)
	defer db.Close()
	compared := 0
	for _, mode := range [][]any{nil, {pgx.QueryExecModeSimpleProtocol}, {pgx.QueryExecModeExec}} {
		for _, value := range values {
			query := "select " + value + " as a, (select (" + value + ") where false) as b"
			want := columns(t, db, query, mode...)
			require.NoError(t, w.with(func(db *sql.DB) error {
				got := columns(t, db, query, mode...)
				for i := range got { // NaN is not equal to itself
					if f, ok := got[i].Value.(float64); ok && f != f {
						require.NotEqual(t, want[i].Value, want[i].Value)
						got[i].Value, want[i].Value = nil, nil
					}
				}
				require.Equal(t, want, got, "%s %v", query, mode)
				return nil
			}))
			compared++
		}
	}
	require.Equal(t, 3*len(values), compared)
}

// A type that the service registered with its connections.
func TestValues_KnowTheTypesOfTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(types)
	registered := w.open(func(c *pgx.Conn) error {
		kinds, err := c.LoadTypes(t.Context(), []string{"mood", "_mood", "pair"})
		c.TypeMap().RegisterTypes(kinds)
		return err
	})
	db := stdlib.OpenDBFromPool(registered.pool)
	defer db.Close()
	const query = "select 'happy'::mood, array['sad']::mood[], row('a', 2)::pair, null::pair"
	want := columns(t, db, query)
	require.Equal(t, "MOOD", want[0].Type)
	require.NoError(t, registered.with(func(db *sql.DB) error {
		require.Equal(t, want, columns(t, db, query))
		return nil
	}))
}
