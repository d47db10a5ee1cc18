package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// protectedDB is a database with a protected table, sku/1 of which is claimed.
type protectedDB struct {
	roles
	store *postgres.Store
	mode  postgres.ProtectMode
	token fence.Token
	fresh bool // the tables are as wayTables makes them, but for their rows
}

// claim claims sku/1 under a new grant: a way may have moved the fence.
func (db *protectedDB) claim(t testing.TB) storage.Claim {
	t.Helper()
	db.token += 10
	return claim(t, db.store, grant(db.token, "a"))
}

// The tables that the ways write to. Rows of stock belong to 'sku/' || sku.
const wayTables = `
	drop table if exists stock, parts, family, cascading, parent, other cascade;
	create table stock (sku int primary key, qty int not null, name text);
	create table parts (sku int, qty int) partition by range (sku);
	create table parts_1 partition of parts for values from (0) to (10);
	create table parts_2 partition of parts for values from (10) to (20);
	create table family (sku int, qty int);
	create table child () inherits (family);
	create table parent (id int primary key);
	create table cascading (sku int references parent on delete cascade on update cascade, qty int);
	create table other (sku int);
	create or replace function write_stock() returns trigger language plpgsql as $$ begin update stock set qty = qty - 1 where sku = new.sku; return new; end $$;
	create trigger t after insert on other for each row execute function write_stock();
	grant all on all tables in schema public to public;` + wayRows

const wayRows = `
	truncate stock, parts, family, cascading, parent, other;
	insert into stock values (1, 10, 'a'), (2, 10, 'b');
	insert into parts values (1, 10), (11, 10);
	insert into family values (1, 10);
	insert into child values (2, 10);
	insert into parent values (1);
	insert into cascading values (1, 10)`

func newProtectedDB(t testing.TB, mode postgres.ProtectMode) *protectedDB {
	t.Helper()
	db := &protectedDB{roles: newRoles(t), mode: mode}
	db.store = newStore(t, db.app, nil)
	return db
}

func (db *protectedDB) rows(t testing.TB) string {
	t.Helper()
	return query[string](t, db.admin, `select concat_ws(' ', (select string_agg(s::text, ' ' order by s) from stock s), (select string_agg(s::text, ' ' order by s) from parts s),
		(select string_agg(s::text, ' ' order by s) from family s), (select string_agg(s::text, ' ' order by s) from cascading s))`)
}

// way is a way to write a protected table past the guard: SQL in one message, with "check", "lock", "seal",
// "void" and "other claim" for parts of a hand-made guarded transaction of sku/1.
type way struct {
	name string
	as   runAs
	sql  string

	setup  string // SQL as the owner, before the tables are protected again
	denied bool   // in either mode, for want of a right
	silent bool   // the error is swallowed, the write is not made
	logged bool   // audit mode can only log it
}

// runAs says who runs the SQL of a way: an app role unless it says otherwise.
type runAs int

const (
	asOwner runAs = iota + 1
	asOp          // a guarded operation on sku/1
)

const sell = "update stock set qty = qty - 1 where sku = 1"

var ways = []way{
	{name: "UPDATE", sql: sell},
	{name: "a savepoint that swallows the error", sql: "do $$ begin begin " + sell + "; exception when others then null; end; end $$", silent: true},
	{name: "TRUNCATE", sql: "truncate stock"},
	{name: "TRUNCATE CASCADE", sql: "truncate parent cascade"},
	{name: "a trigger of another table", sql: "insert into other values (1)"},
	{name: "a partition itself", sql: "update parts_1 set qty = 0"},
	{name: "a new partition", as: asOwner, sql: "create table parts_3 partition of parts for values from (20) to (30); insert into parts_3 values (21, 1)"},
	{name: "a row that moves to another partition", sql: "update parts set sku = 12 where sku = 1"},
	{name: "TRUNCATE of a partition", sql: "truncate parts_1"},
	{name: "an inheriting table itself", sql: "update child set qty = 0"},
	{name: "TRUNCATE of an inheriting table", sql: "truncate child"},
	{name: "ON DELETE CASCADE", sql: "delete from parent"},
	{name: "session_replication_role = replica", as: asOwner, sql: "begin; set local session_replication_role = replica; " + sell + "; commit"},
	{name: "session_replication_role = replica, and a raw COMMIT", as: asOwner, sql: "begin; set local session_replication_role = replica; check; " + sell + "; commit"},

	// Forged
	{name: "the begin check's setting by hand", sql: "begin; select set_config('fencekit.guarded', E'\\nsku/1\\n', true); " + sell + "; commit"},
	{name: "the begin check's advisory lock by hand", sql: "begin; lock; " + sell + "; commit"},
	{name: "the setting, and SET CONSTRAINTS ALL IMMEDIATE", sql: "begin; select set_config('fencekit.guarded', E'\\nsku/1\\n', true); " + sell + "; set constraints all immediate; set constraints all immediate; commit"},
	{name: "the setting in a transaction guarded for another resource", as: asOp, sql: "select set_config('fencekit.guarded', E'\\nsku/2\\n', true); update stock set qty = 0 where sku = 2"},
	{name: "that, and forged that there is no seal", as: asOp, sql: "select set_config('fencekit.sealed', '1', true), set_config('fencekit.guarded', E'\\nsku/2\\n', true); update stock set qty = 0 where sku = 2"},
	{name: "the setting, and a transaction that makes itself read only", sql: "begin; select set_config('fencekit.guarded', E'\\nsku/1\\n', true); " + sell + "; set transaction read only; commit", logged: true},
	{name: "its own row in pending_write", sql: "begin; check; " + sell + "; delete from fence.pending_write; commit", denied: true},
	{name: "DISABLE TRIGGER", sql: "alter table stock disable trigger all", denied: true},
	{name: "unprotect_table", sql: "select fence.unprotect_table('stock', 'stock')", denied: true},

	// Guarded, and committed without a seal
	{name: "a raw COMMIT", sql: "begin; check; " + sell + "; commit"},
	{name: "COMMIT and BEGIN in an operation", as: asOp, sql: sell + "; commit; begin"},
	{name: "a raw COMMIT behind a claim of its own", sql: "begin; claim here; " + sell + "; commit"},
	{name: "a raw COMMIT behind many SET CONSTRAINTS", sql: "begin; check; " + sell + strings.Repeat("; set constraints all immediate", 20) + "; commit"},
	{name: "a raw COMMIT behind SET CONSTRAINTS by name", sql: "begin; check; " + sell + "; set constraints fence.pending_write_sealed immediate; commit"},
	{name: "a raw COMMIT behind SET CONSTRAINTS in a savepoint", sql: "begin; check; " + sell + "; savepoint s; set constraints all immediate; rollback to s; commit"},
	{name: "a raw COMMIT behind a write that was rolled back", sql: "begin; check; savepoint s; " + sell + "; rollback to s; " + sell + "; commit"},
	{name: "a raw COMMIT in a procedure", sql: "do $$ begin perform check; " + sell + "; commit; end $$"},
	{name: "a begin check that was rolled back", sql: "begin; savepoint s; check; rollback to s; " + sell + "; commit"},
	{name: "a seal that was rolled back", sql: "begin; check; " + sell + "; savepoint s; seal; rollback to s; commit"},
	{name: "a seal that was rolled back behind SET CONSTRAINTS", sql: "begin; check; " + sell + "; savepoint s; seal; set constraints all immediate; rollback to s; commit"},
	{name: "a seal of the transaction before, and the setting", sql: "begin; check; seal; commit; begin; select set_config('fencekit.guarded', E'\\nsku/1\\n', true); " + sell + "; commit"},
	{name: "a claim in place of the seal", sql: "begin; check; " + sell + "; other claim; commit"},
	{name: "a void in place of the seal", sql: "begin; check; " + sell + "; void; commit"},
	{name: "a write of another resource behind the seal", sql: "begin; check; " + sell + "; seal; set constraints all immediate; select set_config('fencekit.guarded', E'\\nsku/2\\n', true); update stock set qty = 0 where sku = 2; commit"},

	// Guarded for another resource
	{name: "another resource", as: asOp, sql: "update stock set qty = 0 where sku = 2"},
	{name: "a row that moves to another resource", as: asOp, sql: "update stock set sku = 3 where sku = 1"},
	{name: "a row without a resource", as: asOp, sql: "insert into family values (null, 1)"},
	{name: "a row that loses its resource", as: asOp, sql: "update family set sku = null where sku = 1"},
	{name: "a BEFORE trigger that changes the resource", as: asOp, sql: "insert into family values (1, 1)", setup: `
		create or replace function moves() returns trigger language plpgsql as $$ begin new.sku := 2; return new; end $$;
		create trigger last before insert on family for each row execute function moves()`},
	{name: "a deferred trigger that writes another resource", as: asOp, sql: "insert into other values (2)", setup: `
		drop trigger t on other; create constraint trigger t after insert on other deferrable initially deferred for each row execute function write_stock()`},
}

// fill fills in the parts of a hand-made guarded transaction of sku/1.
func (db *protectedDB) fill(t testing.TB, sql string) string {
	c := db.claim(t)
	return strings.NewReplacer("perform check;", strings.Replace(beginCheckCall(c), "select", "perform", 1)+";", "check;", beginCheckCall(c)+";",
		"lock;", fmt.Sprintf("select pg_advisory_xact_lock_shared(%d, %d);", c.Resource, c.Grant.Token), "seal;", sealCall(c, 77)+";", "void;", voidCall(c, 78)+";", "claim here;", "select fence.create_here('{736b752f31}', ''), fence.claim_here('{736b752f31}', '{61}', '', '{0}', '{0}');",
		"other claim;", fmt.Sprintf("select fence.claim_one('sku/1', 1, %d, 'b');", c.Grant.Token+1)).Replace(sql)
}

func (db *protectedDB) try(t *testing.T, w way) (err error) {
	// The server's own limits don't bound COMMIT.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	switch w.as {
	case asOp:
		_, err = attempt(ctx, db.store, statement(w.sql), db.claim(t))
	case asOwner:
		_, err = db.admin.Exec(ctx, db.fill(t, w.sql))
	default:
		_, err = db.app.Exec(ctx, db.fill(t, w.sql))
	}
	return err
}

// Each way to write a protected table past the guard is rejected, and takes no effect. In audit mode it takes
// effect as if the table weren't protected, and is recorded.
func TestProtect_FindsEachWayPastTheGuard(t *testing.T) {
	t.Parallel()
	for _, mode := range []postgres.ProtectMode{postgres.ProtectEnforce, postgres.ProtectAudit} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			db := newProtectedDB(t, mode)
			for _, w := range ways {
				t.Run(w.name, func(t *testing.T) { db.runs(t, w) })
			}
		})
	}
}

func (db *protectedDB) runs(t *testing.T, w way) {
	db.start(t, w)
	before := db.rows(t)
	err := db.try(t, w)
	switch {
	case w.denied:
		require.ErrorContains(t, err, "42501")
	case db.mode == postgres.ProtectAudit:
		if err != nil {
			require.ErrorIs(t, err, storage.ErrTxEnded)
		}
		require.NotEqual(t, before, db.rows(t))
		writes, err := postgres.UnguardedWrites(t.Context(), db.reader, "")
		require.NoError(t, err)
		require.Equal(t, w.logged, len(writes) == 0, "%v", writes)
		for _, write := range writes {
			require.NotEqual(t, "error", write.Kind, "%v", writes)
		}
		return
	case !w.silent:
		require.ErrorContains(t, err, "SQLSTATE ZF015")
	}
	require.Equal(t, before, db.rows(t))
}

// start makes the tables as they are before each way, protected, and forgets what was recorded.
func (db *protectedDB) start(t *testing.T, w way) {
	t.Helper()
	own := w.setup != "" || w.as == asOwner // it makes triggers or tables
	switch {
	case own || !db.fresh:
		protect := ""
		for _, table := range []string{"stock", "parts", "family", "cascading"} {
			protect += fmt.Sprintf("; select fence.protect_table('%s', '''sku/'' || sku', %t)", table, db.mode == postgres.ProtectAudit)
		}
		mustExec(t, db.admin, wayTables+"; truncate fence.unguarded_write; "+w.setup+protect)
	case db.mode == postgres.ProtectAudit:
		mustExec(t, db.admin, wayRows+"; truncate fence.unguarded_write")
	}
	db.fresh = !own
}

// A client in another language, which makes its transaction by hand and not read only behind the seal, commits as well.
func TestProtect_LetsAHandMadeGuardedTransactionThrough(t *testing.T) {
	t.Parallel()
	for _, mode := range []postgres.ProtectMode{postgres.ProtectEnforce, postgres.ProtectAudit} {
		db := newProtectedDB(t, mode)
		db.start(t, way{})
		require.NoError(t, inOne(t, db.app, db.fill(t, "check; "+sell+"; set constraints all immediate; seal; set constraints all immediate")))
		require.NoError(t, inOne(t, db.app, db.fill(t, "check; savepoint s; "+sell+"; seal; select")))
		require.Equal(t, 8, query[int](t, db.admin, "select qty from stock where sku = 1"))
		require.Zero(t, query[int](t, db.admin, "select count(*) from fence.unguarded_write"))
	}
}

// A write that audit mode can't record, or note, commits all the same. Only where the note can't be
// updated in the course of COMMIT does that fail, with nothing committed.
func TestProtect_AuditBreaksNoWriteThatItCannotRecord(t *testing.T) {
	t.Parallel()
	db := newProtectedDB(t, postgres.ProtectAudit)
	db.start(t, way{})
	mustExec(t, db.admin, "create function disk_is_full() returns trigger language plpgsql as $$ begin raise exception 'no space left' using errcode = 'disk_full'; end $$")
	sold := 0
	for _, full := range []string{"insert on fence.unguarded_write for each row", "insert or update on fence.pending_write for each row"} {
		mustExec(t, db.admin, "create trigger disk_is_full before "+full+" execute function disk_is_full()")
		for _, w := range []way{{sql: sell}, {sql: "begin; check; " + sell + "; commit"}, {as: asOp, sql: sell}} {
			require.NoError(t, db.try(t, w), full)
			sold++
			require.Equal(t, 10-sold, query[int](t, db.admin, "select qty from stock where sku = 1"), full)
			require.Zero(t, query[int](t, db.admin, "select count(*) from fence.unguarded_write"))
		}
		mustExec(t, db.admin, "drop trigger disk_is_full on "+strings.Fields(strings.SplitN(full, " on ", 2)[1])[0])
	}
	mustExec(t, db.admin, "create trigger disk_is_full before update on fence.pending_write for each row when (new.fires > 0) execute function disk_is_full()")
	require.ErrorContains(t, db.try(t, way{as: asOp, sql: sell + "; set constraints all immediate"}), "53100")
	require.Equal(t, 10-sold, query[int](t, db.admin, "select qty from stock where sku = 1"))
}
