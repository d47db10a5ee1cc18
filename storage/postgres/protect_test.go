package postgres_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func protect(t testing.TB, pool *pgxpool.Pool, table, resource string, mode postgres.ProtectMode) {
	t.Helper()
	_, err := postgres.Protect(t.Context(), pool, "", postgres.Protection{Table: table, ResourceExpr: resource, Mode: mode})
	require.NoError(t, err)
}

// guardedWrites each sell one piece of sku 1 in a guarded transaction.
var guardedWrites = map[string]string{
	"an update":                            sell,
	"a savepoint that was rolled back":     "savepoint s; " + sell + "; rollback to s; savepoint s; " + sell + "; release s",
	"SET CONSTRAINTS":                      "set constraints all immediate; " + sell + "; set constraints all deferred; set constraints all immediate; set constraints all immediate",
	"SET CONSTRAINTS in a savepoint":       sell + "; savepoint s; set constraints all immediate; rollback to s; savepoint s; set constraints all immediate; release s",
	"a savepoint that stays open":          "savepoint s; " + sell + "; savepoint s; set constraints all immediate",
	"a hundred SET CONSTRAINTS":            sell + "; do $$ begin for i in 1..100 loop set constraints all immediate; end loop; end $$",
	"a cascade, and a deferred constraint": "insert into line (sku) values (1), (1); update stock set qty = qty - 1, sku = sku where sku = 1; delete from line",
	"ON CONFLICT":                          "insert into stock values (1, 0) on conflict (sku) do update set qty = stock.qty - 1",
}

func TestProtect_LetsGuardedWritesThrough(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]struct {
		mode  postgres.ProtectMode
		level pgx.TxIsoLevel
	}{
		"enforce":               {postgres.ProtectEnforce, pgx.ReadCommitted},
		"enforce, serializable": {postgres.ProtectEnforce, pgx.Serializable},
		"audit":                 {postgres.ProtectAudit, pgx.ReadCommitted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRoles(t)
			mustExec(t, r.admin, `create table stock (sku int primary key, qty int not null); insert into stock values (1, 10), (2, 10);
				create table line (n int generated always as identity, sku int references stock on update cascade on delete cascade deferrable initially deferred, double int generated always as (sku * 2) stored);
				grant all on stock, line to public`)
			protect(t, r.admin, "stock", "'sku/' || sku", p.mode)
			protect(t, r.admin, "line", "'sku/' || double / 2", p.mode)
			store := newStore(t, r.app, at(p.level))
			c, other := claim(t, store, grant(5, "a")), claim(t, store, grantOf("sku/2", 5))
			for _, sql := range guardedWrites {
				c = write(t, store, c, statement(sql))
			}
			batch, _ := batchOf(sell)
			c = write(t, store, c, batch)
			_, err := attempt(t.Context(), store, statement("update stock set qty = qty - case sku when 1 then 1 else 0 end"), c, other)
			require.NoError(t, err)
			require.Equal(t, 10-len(guardedWrites)-2, query[int](t, r.admin, "select qty from stock where sku = 1"))
			require.Zero(t, query[int](t, r.admin, "select count(*) from fence.unguarded_write"))
			require.NoError(t, read(t.Context(), store, statement("select * from stock"), claim(t, store, c.Grant)))
			if p.level == pgx.ReadCommitted {
				beginOwn(t, store, unseen("sku/1")...).write(t, statement(sell))
				err := beginOwn(t, store, unseen("sku/1")...).Run(t.Context(), statement("update stock set qty = 0 where sku = 2"))
				require.Equal(t, p.mode == postgres.ProtectEnforce, err != nil)
			}
		})
	}
}

func TestProtect_EvaluatesTheExpression(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := claim(t, store, grant(5, "a"))
	mustExec(t, r.admin, "create function public.name(n int) returns text language sql return 'sku/' || n; create type mood as enum ('sku', 'user'); create domain positive as int not null check (value > 0)")
	for columns, x := range map[string]struct{ resource, good, bad string }{
		`"new" text, "old" text`:    {`"new" || '/' || "old"`, "'sku', '1'", "'sku', '2'"},
		"m mood, n int":             {"m || '/' || n -- a comment", "'sku', 1", "'user', 1"},
		`"q""uote" int, "CASE" int`: {`'sku/' || "q""uote"`, "1, 1", "2, 1"},
		"n int, g text generated always as ('sku/' || n) stored": {"g", "1", "2"},
		"j jsonb":        {"j ->> 'sku'", `'{"sku": "sku/1"}'`, `'{"sku": null}'`},
		"n int not null": {"'sku/' || 1 / n", "1", "2"}, // fails for a row of nulls no more than for others
		"n positive":     {"'sku/' || n", "1", "2"},
	} {
		t.Run(columns, func(t *testing.T) {
			mustExec(t, r.admin, "drop table if exists things; create table things ("+columns+"); grant all on things to public")
			protect(t, r.admin, "things", x.resource, postgres.ProtectEnforce)
			c = write(t, store, c, statement("insert into things values ("+x.good+")"))
			c = write(t, store, c, statement("delete from things"))
			if x.bad != "" {
				_, err := attempt(t.Context(), store, statement("insert into things values ("+x.bad+")"), c)
				require.ErrorContains(t, err, "ZF015")
			}
		})
	}
}

func TestProtect_RejectsWhatItCannotProtect(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	mustExec(t, r.admin, "create function name_of(key text) returns text language sql return key; create table counted (n int); insert into counted values (1)")
	mustExec(t, r.admin, "create view v as select * from item; create table whole (n text) partition by range (n); create table part partition of whole default; create table top (n text); create table below () inherits (top); create table owned (n int); alter table owned owner to "+r.names.App)
	protect(t, r.admin, "whole", "n", postgres.ProtectAudit)
	protect(t, r.admin, "below", "n", postgres.ProtectAudit)
	// Servers before 18 read what 18 writes for "virtual".
	mustExec(t, r.admin, "create table made (n int, g text generated always as ('sku/' || n) stored, gn int); update pg_attribute set attgenerated = 'v' where attrelid = 'made'::regclass and attname = 'g'")
	before := schemaOf(t, r.dsn)
	for name, p := range map[string]postgres.Protection{
		"no resource":                   {Table: "item", Mode: postgres.ProtectEnforce},
		"a missing table":               {Table: "items", ResourceExpr: "key", Mode: postgres.ProtectEnforce},
		"a column with its table":       {Table: "item", ResourceExpr: "item.key", Mode: postgres.ProtectEnforce},
		"a function without its schema": {Table: "item", ResourceExpr: "name_of(key)", Mode: postgres.ProtectEnforce},
		"an error in the present rows":  {Table: "counted", ResourceExpr: "1 / (n - 1)", Mode: postgres.ProtectAudit},
		"no expression":                 {Table: "item", ResourceExpr: "key;", Mode: postgres.ProtectEnforce},
		"a part of a protected table":   {Table: "part", ResourceExpr: "n", Mode: postgres.ProtectEnforce},
		"a table with a protected part": {Table: "top", ResourceExpr: "n", Mode: postgres.ProtectEnforce},
		"a table of Fencekit's":         {Table: "fence.resource", ResourceExpr: "name", Mode: postgres.ProtectEnforce},
	} {
		_, err := postgres.Protect(t.Context(), r.admin, "", p)
		require.ErrorIs(t, err, fence.ErrInvalid, name)
	}
	_, err := postgres.Protect(t.Context(), r.app, "", postgres.Protection{Table: "owned", ResourceExpr: "n", Mode: postgres.ProtectAudit})
	requireNotReady(t, err, postgres.MissingRights)
	_, err = postgres.Protect(t.Context(), r.admin, "", postgres.Protection{Table: "made", ResourceExpr: "G", Mode: postgres.ProtectEnforce})
	require.ErrorIs(t, err, fence.ErrInvalid)
	require.ErrorContains(t, err, "or declare it stored")
	require.Equal(t, before, schemaOf(t, r.dsn))
	protect(t, r.admin, "made", "gn", postgres.ProtectEnforce)
}

func schemaOf(t testing.TB, dsn string) string {
	t.Helper()
	dump, err := exec.Command("pg_dump", "--schema-only", dsn).Output()
	require.NoError(t, err)
	return regexp.MustCompile(`(?m)^\\(un)?restrict .*$`).ReplaceAllString(string(dump), "")
}

func TestUnprotect_RestoresTheTableExactly(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	mustExec(t, r.admin, wayTables+`; create trigger before before insert on stock for each row execute function write_stock();
		alter table stock enable replica trigger before; alter table parts_1 add check (qty > 0); create schema "Odd ""one"; create unlogged table "Odd ""one"."T%s" (sku int)`)
	before := schemaOf(t, r.dsn)
	tables := []string{"stock", "parts", "family", "cascading", `"Odd ""one"."T%s"`}
	for _, table := range tables {
		protect(t, r.admin, table, "'sku/' || sku", postgres.ProtectAudit)
		protect(t, r.admin, table, "'sku/' || sku + 0", postgres.ProtectEnforce)
	}
	require.NotEqual(t, before, schemaOf(t, r.dsn))
	protected, err := postgres.ListProtected(t.Context(), r.reader, "")
	require.NoError(t, err)
	require.Len(t, protected, len(tables))
	for _, table := range protected {
		require.Equal(t, postgres.ProtectedTable{Protection: postgres.Protection{Table: table.Table, ResourceExpr: "'sku/' || sku + 0", Mode: postgres.ProtectEnforce}}, table)
	}
	for _, table := range tables {
		was, err := postgres.Unprotect(t.Context(), r.admin, "", table)
		require.NoError(t, err)
		require.True(t, was)
	}
	require.Equal(t, before, schemaOf(t, r.dsn))
	was, err := postgres.Unprotect(t.Context(), r.admin, "", "stock")
	require.NoError(t, err)
	require.False(t, was)
	mustExec(t, r.admin, "update stock set qty = 0")
}

func TestProtected_SaysWhatIsNotIntact(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	for name, x := range map[string]struct{ change, table, problem string }{
		"the row trigger not always":     {"alter table stock enable trigger fencekit_protect", "stock", "stock lacks a trigger"},
		"the TRUNCATE trigger dropped":   {"drop trigger fencekit_protect_truncate on stock", "stock", "stock lacks a trigger"},
		"a partition's trigger disabled": {"alter table parts_1 disable trigger fencekit_protect", "parts", "parts_1 lacks a trigger"},
		"a new partition":                {"create table parts_3 partition of parts default", "parts", "parts_3 lacks a trigger"},
		"a renamed column":               {"alter table stock rename sku to number; alter table stock add sku_old int", "stock", "a column that the resource names"},
		"a condition":                    {limited("when (pg_trigger_depth() > 9)", "insert or delete or update"), "stock", "stock lacks a trigger"},
		"the function changed":           {"do $$ begin execute format('create or replace function fence.protect_%s() returns trigger language plpgsql as ''begin return null; end''', (select id from fence.protection where relation = 'stock'::regclass)); end $$", "stock", "the trigger function was changed"},
		"the function dropped":           {"do $$ begin execute format('drop function fence.protect_%s() cascade', (select id from fence.protection where relation = 'stock'::regclass)); end $$", "stock", "the trigger function is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			mustExec(t, r.admin, "drop table if exists child_2; "+wayTables)
			mode := postgres.ProtectEnforce
			protect(t, r.admin, x.table, "'sku/' || sku", mode)
			mustExec(t, r.admin, x.change)
			table := findProtected(t, r.reader, x.table)
			require.Contains(t, table.Problem, x.problem)
			if name == "a renamed column" {
				mustExec(t, r.admin, "alter table stock rename number to sku")
			}
			protect(t, r.admin, x.table, "'sku/' || sku", mode)
			require.Empty(t, findProtected(t, r.reader, x.table).Problem)
		})
	}
	protect(t, r.admin, "stock", "'sku/' || sku", postgres.ProtectEnforce)
	mustExec(t, r.admin, "drop table stock cascade")
	require.Equal(t, "the table is gone", findProtected(t, r.reader, "public.stock").Problem)
	protect(t, r.admin, "item", "key", postgres.ProtectEnforce)
	require.Zero(t, query[int](t, r.admin, "select count(*) from fence.protection where not exists (select from pg_class where oid = relation)"))
	mustExec(t, r.admin, "create table stock (sku int)")
	protect(t, r.admin, "stock", "sku", postgres.ProtectEnforce)
	mustExec(t, r.admin, "drop table stock")
	was, err := postgres.Unprotect(t.Context(), r.admin, "", "public.stock")
	require.NoError(t, err)
	require.True(t, was)
	_, err = postgres.Unprotect(t.Context(), r.admin, "", "stock")
	require.ErrorIs(t, err, fence.ErrInvalid)
}

func TestProtected_SaysThatTheCheckAtCommitIsNotIntact(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	protect(t, r.admin, "item", "key", postgres.ProtectEnforce)
	const drop, create, always = "drop trigger pending_write_sealed on fence.pending_write; ", "create constraint trigger pending_write_sealed after ", "; alter table fence.pending_write enable always trigger pending_write_sealed"
	for name, change := range map[string]string{
		"disabled":          "alter table fence.pending_write disable trigger pending_write_sealed",
		"immediate":         drop + create + "insert or update of round on fence.pending_write for each row execute function fence.check_writes()" + always,
		"under a condition": drop + create + "insert or update of round on fence.pending_write deferrable initially deferred for each row when (pg_trigger_depth() > 9) execute function fence.check_writes()" + always,
		"another function":  "create or replace function nothing() returns trigger language plpgsql as 'begin return null; end'; " + drop + create + "insert or update of round on fence.pending_write deferrable initially deferred for each row execute function nothing()" + always,
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, query[string](t, locked(t, r.admin, change), "select problem from fence.protected_table"), "the check at COMMIT")
		})
	}
	require.Empty(t, findProtected(t, r.reader, "item").Problem)
}

func limited(condition, events string) string {
	return fmt.Sprintf("do $$ begin execute format('create or replace trigger fencekit_protect after %s on stock for each row %s execute function fence.protect_%%s()', "+
		"(select id from fence.protection where relation = 'stock'::regclass)); alter table stock enable always trigger fencekit_protect; end $$", events, condition)
}

func findProtected(t testing.TB, pool *pgxpool.Pool, name string) postgres.ProtectedTable {
	t.Helper()
	protected, err := postgres.ListProtected(t.Context(), pool, "")
	require.NoError(t, err)
	for _, p := range protected {
		if p.Table == name {
			return p
		}
	}
	t.Fatalf("%s isn't protected", name)
	return postgres.ProtectedTable{}
}

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

// A prepared transaction outlives its backend. It can only be prepared once it is sealed, and a prune leaves its
// note. In audit mode it may be prepared, and the next one of its backend doesn't wait for its end, whether it was
// the first to leave a note or not.
func TestProtect_PreparedTransactionHasBeenSealed(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, map[string]string{"max_prepared_transactions": "4"})
	pool := openPool(t, dsn)
	store := newStore(t, pool, &postgres.Config{AllowPreparedTransactions: true})
	protect(t, pool, "item", "'sku/1'", postgres.ProtectEnforce)
	c := claim(t, store, grant(5, "a"))
	send := func(sql ...string) (err error) {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		for i := 0; i < len(sql) && err == nil; i++ {
			_, err = conn.Exec(t.Context(), sql[i])
		}
		require.NoError(t, conn.Close(t.Context()))
		eventually(t, pool, "select not exists (select from pg_stat_activity where pid = $1)", conn.PgConn().PID())
		return err
	}
	const insert, prepare = "insert into item values ('x', 1)", "prepare transaction 'p'"
	require.ErrorContains(t, send("begin", insert, prepare), "ZF015")
	require.ErrorContains(t, send("begin", beginCheckCall(c), insert, prepare), "ZF015")
	require.ErrorContains(t, send("begin", beginCheckCall(c), insert, "set constraints all immediate", prepare), "ZF015")
	_, err := attempt(t.Context(), store, do(statement(insert+"; "+prepare)), c)
	require.ErrorContains(t, err, "ZF015")
	require.Zero(t, query[int](t, pool, "select count(*) from pg_prepared_xacts"))

	require.NoError(t, send("begin", beginCheckCall(c), insert, sealCall(c, 77), prepare))
	prunes(t, store, postgres.Pruned{})
	mustExec(t, pool, "commit prepared 'p'")
	holds(t, pool, "x", 1)
	require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite}, kinds(t, store))
	prunes(t, store, postgres.Pruned{})
	require.Zero(t, query[int](t, pool, "select count(*) from fence.pending_write where not exists (select from pg_stat_activity a where a.pid = pending_write.pid)"))

	protect(t, pool, "item", "'sku/1'", postgres.ProtectAudit)
	var again []string
	for i := range 3 {
		again = append(again, "begin", fmt.Sprintf("insert into item values ('%d prepared', 1)", i), prepare,
			"set statement_timeout = '1min'", fmt.Sprintf("insert into item values ('%d', 1)", i), "commit prepared 'p'")
	}
	require.NoError(t, send(again...))
	require.Equal(t, 6, query[int](t, pool, "select count(distinct xid) from fence.unguarded_write"))
}

func TestProtect_UsesNoOperatorOfTheSession(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	mustExec(t, r.admin, "create table stock (sku int primary key, qty int not null); insert into stock values (1, 10); grant all on stock to public; "+hostile+"; create function hostile.current_setting(text) returns text language sql as 'select '''''")
	protect(t, r.admin, "stock", "'sku/' || sku", postgres.ProtectEnforce)
	conn, err := r.app.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "set search_path = hostile, pg_catalog, public")
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

	mustExec(t, r.admin, "drop function hostile.current_setting(text)") // with it a Store can't ask for the server's version
	g, err := guard.New(guardtest.NewLocker(), newStore(t, openPool(t, r.dsn, with(map[string]string{"search_path": "hostile, pg_catalog, public"})), nil), nil)
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
