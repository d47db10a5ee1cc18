package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Transactions of different resources don't conflict in what the triggers read and write, though the
// tables are so small that the server would rather read all of them.
func TestProtect_DifferentResourcesDoNotConflict(t *testing.T) {
	t.Parallel()
	p := newPair(t, migrated(t))
	protect(t, p.pool, "a", "'a'", postgres.ProtectEnforce)
	protect(t, p.pool, "b", "'b'", postgres.ProtectEnforce)
	require.NoError(t, p.overlap(), "the first write of a connection inserts")
	mustExec(t, p.pool, "vacuum analyze fence.pending_write, fence.resource")
	for i := range 20 {
		require.NoError(t, p.overlap(), "time %d", i)
	}
}

// A record says which application wrote, and that the expression failed, if it did.
func TestProtect_AuditRecordsWhoAndWhatFailed(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	protect(t, r.admin, "item", "1 / value", postgres.ProtectAudit)
	mustExec(t, r.app, "set application_name = 'nightly import'; insert into item values ('x', 1), ('y', 0), ('z', 0)")
	writes, err := postgres.UnguardedWrites(t.Context(), r.reader, "")
	require.NoError(t, err)
	kinds := map[string]int64{}
	for _, w := range writes {
		require.Equal(t, "nightly import", w.Application)
		kinds[w.Kind+" "+w.Resource] = w.Records
	}
	require.Equal(t, map[string]int64{"insert 1": 1, "error ": 1}, kinds)
}

// A prune removes what backends that have ended left behind, and nothing else.
func TestPrune_ForgetsWhatEndedBackendsWrote(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pool := openPool(t, dsn, single)
	store := newStore(t, pool, nil)
	protect(t, pool, "item", "'sku/1'", postgres.ProtectEnforce)
	c := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	admin := openPool(t, dsn)
	ended := query[int](t, admin, "select pid from fence.pending_write")
	pool.Reset()
	c = write(t, store, c, set("x", 2))
	eventually(t, admin, "select not exists (select from pg_stat_activity where pid = $1)", ended)
	require.Equal(t, 2, query[int](t, admin, "select count(*) from fence.pending_write"))
	for range 2 {
		_, err := newStore(t, admin, nil).Prune(t.Context())
		require.NoError(t, err)
		require.Equal(t, query[int](t, pool, "select pg_backend_pid()"), query[int](t, admin, "select pid from fence.pending_write"))
	}
	write(t, store, c, set("x", 3))
}

// A transaction that has written a table in enforce mode may also be recorded for one in audit mode,
// in the same note. It is checked all the same, and commits with the seal.
func TestProtect_ChecksWhatARecordFollows(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	mustExec(t, r.admin, "create table audited (n int); grant all on audited to public")
	protect(t, r.admin, "item", "'sku/1'", postgres.ProtectEnforce)
	protect(t, r.admin, "audited", "'sku/' || n", postgres.ProtectAudit)
	c := claim(t, store, grant(5, "a"))
	const insert, record = "insert into item values ('x', 1)", "insert into audited values (2)"
	for _, sql := range []string{
		insert + "; " + record,
		record + "; " + insert + "; " + record + "; insert into audited values (3)",
		insert + "; " + record + "; set constraints all immediate",
		insert + "; set constraints all immediate; " + record,
		insert + "; savepoint s; " + record + "; set constraints all immediate; rollback to s",
	} {
		require.ErrorContains(t, inOne(t, r.app, beginCheckCall(c)+"; "+sql), "ZF015", sql)
		_, err := attempt(t.Context(), store, statement(sql+"; commit"), c)
		require.ErrorContains(t, err, "ZF015", sql)
	}
	require.Zero(t, query[int](t, r.admin, "select count(*) from fence.unguarded_write"))
	write(t, store, c, statement(insert+"; "+record))
	require.Equal(t, []string{"sku/2"}, column(t, r.admin, "select resource from fence.unguarded_write"))
}

// A prepared transaction outlives its backend. It can only be prepared once it is sealed, and a prune leaves its note.
func TestProtect_PreparedTransactionHasBeenSealed(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, map[string]string{"max_prepared_transactions": "4"})
	pool := openPool(t, dsn)
	store := newStore(t, pool, &postgres.Config{AllowPreparedTransactions: true})
	protect(t, pool, "item", "'sku/1'", postgres.ProtectEnforce)
	c := claim(t, store, grant(5, "a"))
	send := func(sql ...string) error {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		defer func() {
			require.NoError(t, conn.Close(t.Context()))
			eventually(t, pool, "select not exists (select from pg_stat_activity where pid = $1)", conn.PgConn().PID())
		}()
		for _, s := range sql {
			if _, err := conn.Exec(t.Context(), s); err != nil {
				return err
			}
		}
		return nil
	}
	const insert, prepare = "insert into item values ('x', 1)", "prepare transaction 'p'"
	require.ErrorContains(t, send("begin", insert, prepare), "ZF015")
	require.ErrorContains(t, send("begin", beginCheckCall(c), insert, prepare), "ZF015")
	require.ErrorContains(t, send("begin", beginCheckCall(c), insert, "set constraints all immediate", prepare), "ZF015")
	_, err := attempt(t.Context(), store, do(statement(insert+"; "+prepare)), c)
	require.ErrorContains(t, err, "ZF015")
	require.Zero(t, query[int](t, pool, "select count(*) from pg_prepared_xacts"))

	require.NoError(t, send("begin", beginCheckCall(c), insert, sealCall(c, 77), prepare))
	_, err = store.Prune(t.Context())
	require.NoError(t, err)
	mustExec(t, pool, "commit prepared 'p'")
	holds(t, pool, "x", 1)
	require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite}, kinds(t, store))
	_, err = store.Prune(t.Context())
	require.NoError(t, err)
	require.Zero(t, query[int](t, pool, "select count(*) from fence.pending_write where not exists (select from pg_stat_activity a where a.pid = pending_write.pid)"))
}

// A transaction that audit mode has recorded may be prepared. The next one of its backend doesn't wait
// for its end, whether it was the first to leave a note or not.
func TestProtect_AuditWaitsForNoPreparedTransaction(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, map[string]string{"max_prepared_transactions": "4"})
	admin := openPool(t, dsn)
	protect(t, admin, "item", "'sku/1'", postgres.ProtectAudit)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for i := range 3 {
		for _, sql := range []string{
			"begin", fmt.Sprintf("insert into item values ('%d prepared', 1)", i), "prepare transaction 'p'",
			"set statement_timeout = '1min'", fmt.Sprintf("insert into item values ('%d', 1)", i),
			"commit prepared 'p'",
		} {
			_, err := conn.Exec(t.Context(), sql)
			require.NoError(t, err, sql)
		}
	}
	require.Equal(t, 6, query[int](t, admin, "select count(distinct xid) from fence.unguarded_write"))
}

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

// A transaction whose snapshot is older than the protection, or than its mode, is rejected like any
// other: when it writes, and, where it has forged the begin check's setting, at COMMIT. In audit
// mode it commits, and the write is recorded.
func TestProtect_CountsForOlderSnapshots(t *testing.T) {
	t.Parallel()
	const forge, write = "select set_config('fencekit.guarded', E'\\nsku/1\\n', true)", "insert into item values ('x', 1)"
	for name, c := range map[string]struct {
		before, then postgres.ProtectMode
		sql          string
	}{
		"a new protection, and a forged check": {"", postgres.ProtectEnforce, forge + "; " + write},
		"a new mode":                           {postgres.ProtectAudit, postgres.ProtectEnforce, write},
		"a new audit mode":                     {postgres.ProtectEnforce, postgres.ProtectAudit, write},
		"a new audit mode, and a forged check": {postgres.ProtectEnforce, postgres.ProtectAudit, forge + "; " + write},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoles(t)
			if c.before != "" {
				protect(t, r.admin, "item", "'sku/1'", c.before)
			}
			tx := locked(t, r.app, "set transaction isolation level repeatable read; select 1") // takes the snapshot
			protect(t, r.admin, "item", "'sku/1'", c.then)
			_, err := tx.Exec(t.Context(), c.sql+"; commit")
			written := query[int](t, r.admin, "select count(*) from item")
			if c.then == postgres.ProtectEnforce {
				require.ErrorContains(t, err, "ZF015")
				require.Zero(t, written)
			} else {
				require.NoError(t, err)
				require.Equal(t, 1, written)
				require.Equal(t, 1, query[int](t, r.admin, "select count(*) from fence.unguarded_write"))
			}
		})
	}
}
