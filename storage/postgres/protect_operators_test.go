package postgres_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage/postgres"
)

// shadowing makes a schema with an operator for each one of pg_catalog that takes types which the
// check of protected tables uses, and with a few of its functions. They return null: a comparison that finds
// one of these doesn't know that a seal is missing.
const shadowing = `
	create schema shadow;
	grant usage on schema shadow to public;
	do $$
	declare o record;
	begin
		for o in select oid, oprname, oprleft::regtype as l, oprright::regtype as r, oprresult::regtype as result from pg_catalog.pg_operator
		          where oprnamespace = 'pg_catalog'::regnamespace and oprkind = 'b'
		            and oprleft::regtype::text in ('text', 'integer', 'bigint', 'xid', 'xid8', 'oid', 'tid', 'boolean', 'timestamp with time zone', 'anyarray', 'name', 'anycompatiblearray')
		loop
			execute format('create function shadow.f%1$s(%2$s, %3$s) returns %4$s language plpgsql as ''begin return null; end''', o.oid, o.l, o.r, o.result);
			execute format('create operator shadow.%s (leftarg = %s, rightarg = %s, function = shadow.f%s)', o.oprname, o.l, o.r, o.oid);
		end loop;
	end $$;
	create function shadow.age(xid) returns integer language sql as 'select 0';
	create function shadow.strpos(text, text) returns integer language sql as 'select 0';
	create function shadow.split_part(text, text, integer) returns text language sql as 'select ''''';
	create function shadow.current_setting(text) returns text language sql as 'select ''''';
	create function shadow.pg_current_xact_id() returns xid8 language sql as 'select ''0''::xid8'`

// What the session's search_path finds first has no part in the check at COMMIT.
func TestProtect_UsesNoOperatorOfTheSession(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	mustExec(t, r.admin, "create table stock (sku int primary key, qty int not null); insert into stock values (1, 10); grant all on stock to public; "+shadowing)
	protect(t, r.admin, "stock", "'sku/' || sku", postgres.ProtectEnforce)
	conn, err := r.app.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "set search_path = shadow, pg_catalog, public")
	require.NoError(t, err)
	var shadowed *bool
	require.NoError(t, conn.QueryRow(t.Context(), "select 'a'::text = 'b'::text").Scan(&shadowed))
	require.Nil(t, shadowed, "the operators are shadowed")

	_, err = conn.Exec(t.Context(), `begin; select pg_catalog.set_config('fencekit.guarded', E'\nsku/1\n', true); update stock set qty = 0`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "commit")
	require.ErrorContains(t, err, "has no seal")
	_, err = conn.Exec(t.Context(), "rollback; reset search_path")
	require.NoError(t, err)
	require.Equal(t, 10, query[int](t, r.admin, "select qty from stock"))

	mustExec(t, r.admin, "drop function shadow.current_setting") // with it a Store can't ask for the server's version
	g, err := guard.New(guardtest.NewLocker(), newStore(t, openPool(t, r.dsn, with(map[string]string{"search_path": "shadow, pg_catalog, public"})), nil), nil)
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), g, "sku/1", statement("update public.stock set qty = 9")))
	require.Equal(t, 9, query[int](t, r.admin, "select qty from stock"))
}
