package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// tricks is SQL by which an operation may try to defeat its own seal, and the error that
// its transaction must fail with; with "" it commits.
var tricks = map[string]string{
	"set local default_transaction_read_only = on":                                  "",
	"set session characteristics as transaction isolation level serializable":       "",
	"set default_transaction_deferrable = on":                                       "",
	"set transaction not deferrable":                                                "25001",
	"set search_path = pg_temp, hostile, pg_catalog, public":                        "",
	"set standard_conforming_strings = off":                                         "",
	"set local client_encoding = 'LATIN1'":                                          "",
	"set local lock_timeout = 0; set local idle_in_transaction_session_timeout = 0": "",
	"set session_replication_role = replica":                                        "",
	"set local synchronous_commit = off":                                            "",
	"set local row_security = off":                                                  "",
	"set local client_min_messages = error":                                         "",
	"set local enable_indexscan = off; set local enable_bitmapscan = off":           "",
	"deallocate all":        "",
	"close all; unlisten *": "",

	"set transaction read only":                             "25006",
	"set transaction read only; set transaction read write": "25001",
	"set transaction isolation level read uncommitted":      "25001",
	"set role nobody_here":                                  "42501",
	"discard all":                                           "25001",
	"reset all":                                             "",
	"set local fencekit.xid = '1'":                          "",
	"select fence.begin_check(id, epoch, token, '2000', '5000', '5000', '5000', '0') from fence.resource": "",
	"update fence.resource set seq = seq + 1":                                                             "ZF002",
	"update fence.resource set token = token + 1":                                                         "ZF001",
}

func TestHostile_CommitsSealedOrFailsClearly(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	plain := openPool(t, dsn)
	other := newRole(t, plain, "other")
	mustExec(t, plain, hostile)
	judge := newStore(t, plain, nil)
	for sql, want := range tricks {
		for _, swallow := range []bool{false, true} {
			if swallow && want == "" {
				continue
			}
			name := fmt.Sprintf("%s, swallowed: %v", sql, swallow)
			pool := openPool(t, dsn, single)
			store := newStore(t, pool, nil)
			mustExec(t, plain, "delete from item")
			c := claim(t, store, epochGrant(1, 10))
			_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
				require.NoError(t, set("x", 1)(ctx, tx))
				if err := statement(replaceRole(sql, other))(ctx, tx); !swallow {
					return err
				}
				return nil
			}), c)
			holds(t, plain, "x", map[bool]int64{true: 1, false: 0}[err == nil])
			require.NotErrorAs(t, err, new(*storage.InDoubtError), name)
			switch {
			case want == "":
				require.NoError(t, err, name)
			case want == "ZF001" || want == "ZF002":
				require.ErrorAs(t, err, new(*storage.RejectedError), name)
			case want == "25001" && swallow:
				require.ErrorIs(t, err, pgx.ErrTxCommitRollback, name)
			default:
				require.ErrorContains(t, err, want, name)
				require.ErrorContains(t, err, map[string]string{"42501": "SET ROLE", "25006": "read only"}[want], name)
				require.Equal(t, want == "42501", errors.Is(err, postgres.ErrNotReady), name)
			}
			require.Equal(t, err == nil, claim(t, judge, c.Grant).Seq > c.Seq, name)
			write(t, store, claim(t, store, c.Grant), statement("insert into public.item values ('next', 1)"))
			pool.Close()
		}
	}
	verifyChain(t, plain)
}

// hostile is a schema that shadows the operators and functions of the protocol, and of protected tables, for
// sessions whose search_path has it first. They return null, or what is wrong: a comparison that finds one of
// these doesn't know that a seal is missing.
const hostile = `
	create schema hostile;
	grant usage on schema hostile to public;
	do $$
	declare o record;
	begin
		for o in select oid, oprname, oprleft::regtype as l, oprright::regtype as r, oprresult::regtype as result from pg_catalog.pg_operator
		          where oprnamespace = 'pg_catalog'::regnamespace and oprkind = 'b'
		            and oprleft::regtype::text in ('text', 'integer', 'bigint', 'xid', 'xid8', 'oid', 'tid', 'boolean', 'timestamp with time zone', 'anyarray', 'name', 'anycompatiblearray')
		loop
			execute format('create function hostile.f%1$s(%2$s, %3$s) returns %4$s language plpgsql as ''begin return null; end''', o.oid, o.l, o.r, o.result);
			execute format('create operator hostile.%s (leftarg = %s, rightarg = %s, function = hostile.f%s)', o.oprname, o.l, o.r, o.oid);
		end loop;
	end $$;
	create function hostile.age(xid) returns integer language sql as 'select 0';
	create function hostile.strpos(text, text) returns integer language sql as 'select 0';
	create function hostile.split_part(text, text, integer) returns text language sql as 'select ''''';
	create function hostile.pg_current_xact_id() returns xid8 language sql as 'select ''0''::xid8';
	create function hostile.sha256(bytea) returns bytea language sql as 'select ''''::bytea';
	create function hostile.set_config(text, text, boolean) returns text language sql as 'select ''''';
	create function hostile.current_setting(text, boolean) returns text language sql as 'select ''''';
	create function hostile.convert_from(bytea, text) returns text language sql as 'select ''hostile''';
	create function hostile.decode(text, text) returns bytea language sql as 'select ''''::bytea';
	create function hostile.pg_terminate_backend(integer, bigint) returns boolean language sql as 'select false';
	create function hostile.clock_timestamp() returns timestamptz language sql as 'select ''epoch''::timestamptz'`

func TestStore_WorksUnderAnySettings(t *testing.T) {
	t.Parallel()
	for name, params := range map[string]map[string]string{
		"shadowing search_path": {"search_path": "hostile, pg_catalog, public"},
		"backslashes in text":   {"standard_conforming_strings": "off", "escape_string_warning": "off", "backslash_quote": "on"},
		"read only":             {"default_transaction_read_only": "on"},
		"serializable":          {"default_transaction_isolation": "serializable", "default_transaction_deferrable": "on"},
		"plans":                 {"plan_cache_mode": "force_generic_plan", "enable_indexscan": "off", "enable_bitmapscan": "off"},
		"simple protocol":       nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := migrated(t)
			plain := openPool(t, dsn)
			mustExec(t, plain, hostile)
			pool := openPool(t, dsn, with(params), func(cfg *pgxpool.Config) {
				if params == nil {
					cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
				}
			})
			store := newStore(t, pool, nil)
			claim(t, store, grantOf("sku/0", 9))
			c := claim(t, store, grant(5, "a"))
			c = write(t, store, c, statement("create temporary table resource (id int); create temporary table event (id int); insert into public.item values ('x', 1)"))
			_, err := attempt(t.Context(), store, statement("commit; begin"), c)
			require.ErrorIs(t, err, storage.ErrTxEnded)
			require.NoError(t, read(t.Context(), store, statement("select value from public.item"), c))
			require.ErrorIs(t, read(t.Context(), store, statement("commit; begin"), c), storage.ErrTxEnded)
			stale := c
			c = claim(t, store, grant(6, "b"))
			_, err = attempt(t.Context(), store, statement("insert into public.item values ('y', 1)"), stale)
			require.Equal(t, grant(6, "b"), requireRejected(t, err, storage.ReasonStale).Current)
			_, err = store.Claim(t.Context(), storage.Claim{Grant: grant(6, "c")})
			requireRejected(t, err, storage.ReasonCollision)
			require.False(t, applied(t, store, storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1}))

			judge := newStore(t, plain, nil)
			require.Equal(t, []storage.EntryKind{storage.KindClaim, storage.KindWrite, storage.KindClaim, storage.KindVoid}, kinds(t, judge))
			require.Len(t, recorded(t, judge), 2)
			require.Equal(t, []string{"1"}, column(t, plain, "select value::text from item"))
			verifyChain(t, plain)
		})
	}
}

// The functions depend on no setting of the session, see what has committed by then, and aren't anybody's to call.
func TestFunctions_PinTheirSettings(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	const functions = "select proname::text from pg_proc where pronamespace = 'fence'::regnamespace and "
	require.ElementsMatch(t, []string{"check_fence", "seal_one", "note_write", "check_writes", "lock_wake", "lock_row", "lock_grant", "lock_pass", "lock_state"},
		column(t, pool, functions+"prolang = (select oid from pg_language where lanname = 'plpgsql') and not coalesce('search_path=pg_catalog, pg_temp' = any(proconfig), false)"),
		"plpgsql functions without a search_path of their own: those that only functions call which pin it, the one that runs the session's triggers, "+
			"the one that only the triggers of protected tables call, which pin it, and the one that names the schema of each operator")
	require.Empty(t, column(t, pool, functions+"(provolatile <> 'v' or has_function_privilege('public', oid, 'execute'))"))
}

func column(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	return collect[string](t, pool, sql, args...)
}

func collect[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return values
}

const refuseTimeline = `alter function pg_catalog.pg_walfile_name(pg_lsn) rename to walfile_name_of_postgres;
	create function pg_catalog.pg_walfile_name(pg_lsn) returns text language plpgsql as $$ begin
		raise exception 'not supported' using errcode = '0A000';
	end $$`

// Where the server refuses to say which timeline it is on, as Amazon Aurora does, everything works without it, and the
// log says so. On a server that tells it, as after a dump and restore, each fence has to be claimed anew.
func TestCheck_GoesOnWithoutTheTimeline(t *testing.T) {
	t.Parallel()
	const tell = `drop function pg_catalog.pg_walfile_name(pg_lsn); alter function pg_catalog.walfile_name_of_postgres(pg_lsn) rename to pg_walfile_name`
	dsn := migrated(t)
	admin := openPool(t, dsn)
	mustExec(t, admin, refuseTimeline)
	fresh := func(log *logged) *postgres.Store { // sessions that have planned nothing yet
		return newStore(t, openPool(t, dsn), &postgres.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	}
	const timeline = "select timeline from fence.resource where name = $1"

	var log logged
	store := fresh(&log)
	c := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	require.Contains(t, log.String(), "doesn't tell its timeline")
	require.Zero(t, query[int](t, admin, timeline, resource))
	require.NoError(t, read(t.Context(), store, get("x", new(int64)), c))
	require.Equal(t, c, claim(t, store, c.Grant))
	_, _, err := store.Recall(t.Context(), storage.OnceKey{Key: "k"}, c)
	require.NoError(t, err)
	other := claim(t, store, grantOf("sku/2", 5))
	_, err = attempt(t.Context(), store, set("y", 1), c, other)
	require.NoError(t, err)
	c = claim(t, store, c.Grant)
	stale := c
	c = claim(t, store, grant(6, "b"))
	_, err = attempt(t.Context(), store, set("x", 2), stale)
	require.ErrorIs(t, err, storage.ErrStaleToken)

	mustExec(t, admin, tell)
	log = logged{}
	store = fresh(&log)
	require.NoError(t, store.Check(t.Context()))
	require.NotContains(t, log.String(), "timeline")
	_, err = attempt(t.Context(), store, set("x", 2), c)
	requireRejected(t, err, storage.ReasonFailedOver)
	requireRejected(t, read(t.Context(), store, get("x", new(int64)), c), storage.ReasonFailedOver)
	_, err = claimOne(t.Context(), store, c.Grant)
	requireRejected(t, err, storage.ReasonFailedOver)
	c = write(t, store, claim(t, store, grant(7, "c")), set("x", 2))
	require.Positive(t, query[int](t, admin, timeline, resource))

	mustExec(t, admin, refuseTimeline)
	store = fresh(&log)
	_, err = claimOne(t.Context(), store, c.Grant)
	requireRejected(t, err, storage.ReasonFailedOver)
	_, err = claimHere(t, store, unseen(resource)...)
	require.ErrorIs(t, err, storage.ErrHeld)
	write(t, store, claim(t, store, grant(8, "d")), set("x", 3))
	beginOwn(t, store, unseen(resource)...).write(t, set("x", 4))
	verifyChain(t, admin)
}

func TestCheck_RefusesOtherProductsByName(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	admin := openPool(t, dsn)
	mustExec(t, admin, "create schema other; create function other.version() returns text language sql return 'PostgreSQL'")
	for product, version := range map[string]string{"CockroachDB": "CockroachDB CCL v24.1.0", "YugabyteDB": "PostgreSQL 11.2-YB-2.21.0.0-b0"} {
		mustExec(t, admin, "create or replace function other.version() returns text language sql return '"+version+"'")
		err := newStore(t, openPool(t, dsn, with(map[string]string{"search_path": "other, pg_catalog"})), nil).Check(t.Context())
		requireNotReady(t, err, postgres.Unsupported)
		require.ErrorContains(t, err, "it is "+product)
	}
}

// An operation can't bypass the fence by a seal or begin check of its own, rolled back or
// not.
func TestHostile_OwnSealInASavepoint(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	c := claim(t, store, grant(5, "a"))
	seal := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, beginCheckCall(c)+"; "+sealCall(c, 77), pgx.QueryExecModeSimpleProtocol)
		return err
	}
	_, err := attempt(t.Context(), store, do(func(ctx context.Context, tx pgx.Tx) error {
		require.NoError(t, set("x", 1)(ctx, tx))
		return seal(ctx, tx)
	}), c)
	require.ErrorIs(t, err, storage.ErrOvertaken, "by itself")
	holds(t, pool, "x", 0)

	c = write(t, store, claim(t, store, c.Grant), do(func(ctx context.Context, tx pgx.Tx) error {
		savepoint, err := tx.Begin(ctx)
		require.NoError(t, err)
		require.NoError(t, set("undone", 1)(ctx, savepoint))
		require.NoError(t, seal(ctx, savepoint))
		require.NoError(t, savepoint.Rollback(ctx))
		return set("y", 1)(ctx, tx)
	}))
	holds(t, pool, "undone", 0)
	holds(t, pool, "y", 1)
	require.Equal(t, c, claim(t, store, c.Grant))
}
