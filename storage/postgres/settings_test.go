package postgres_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// hostile is a schema that shadows the operators and functions of the protocol, for
// sessions whose search_path has it first.
const hostile = `
	create schema hostile;
	create function hostile.yes(text, text) returns boolean language sql immutable as 'select true';
	create function hostile.yes(bigint, bigint) returns boolean language sql immutable as 'select true';
	create operator hostile.= (leftarg = text, rightarg = text, function = hostile.yes);
	create operator hostile.= (leftarg = bigint, rightarg = bigint, function = hostile.yes);
	create operator hostile.<> (leftarg = text, rightarg = text, function = hostile.yes);
	create function hostile.sha256(bytea) returns bytea language sql immutable as 'select ''''::bytea';
	create function hostile.set_config(text, text, boolean) returns text language sql as 'select ''''';
	create function hostile.current_setting(text, boolean) returns text language sql as 'select ''''';
	create function hostile.convert_from(bytea, text) returns text language sql as 'select ''hostile''';
	create function hostile.decode(text, text) returns bytea language sql as 'select ''''::bytea';
	create function hostile.pg_terminate_backend(integer, bigint) returns boolean language sql as 'select false';
	create function hostile.clock_timestamp() returns timestamptz language sql as 'select ''epoch''::timestamptz'`

// The protocol works, and rejections are detected and recorded, regardless of the defaults
// of session, role or database. A second resource exists, so that a mix-up would show.
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

// Where the planner may choose just-in-time compilation, it does so for the
// functions' own queries, whose cost enable_seqscan = off makes look enormous.
func TestFunctions_PinTheirSettings(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	unpinned := column(t, pool, `select proname::text from pg_proc where pronamespace = 'fence'::regnamespace
		and prolang = (select oid from pg_language where lanname = 'plpgsql')
		and not coalesce('search_path=pg_catalog, pg_temp' = any(proconfig), false)`)
	require.ElementsMatch(t, []string{"append", "check_fence", "seal_one", "note_write", "check_writes"}, unpinned,
		"plpgsql functions without a search_path of their own: those that only functions call which pin it, the one that runs the session's triggers, "+
			"the one that only the triggers of protected tables call, which pin it, and the one that names the schema of each operator")
	slow := column(t, pool, `select proname::text from pg_proc where pronamespace = 'fence'::regnamespace
		and 'enable_seqscan=off' = any(proconfig) and not 'jit=off' = any(proconfig)`)
	require.ElementsMatch(t, []string{"begin_check", "begin_check_all", "check_read", "check_writes", "seal", "seal_all"}, slow, "they read single rows by their keys, which costs too little for JIT")
	require.Subset(t, column(t, pool, `select proname::text from pg_proc where pronamespace = 'fence'::regnamespace
		and 'enable_seqscan=off' = any(proconfig)`), []string{"begin_check", "claim", "create_fence", "evict", "end_if_superseded", "pass_marks", "reject", "resolve", "seal", "stale_backends"})
	require.Empty(t, column(t, pool, "select proname::text from pg_proc where pronamespace = 'fence'::regnamespace and provolatile <> 'v'"),
		"functions whose statements don't see what has committed by then")
	require.Empty(t, column(t, pool, `select proname::text from pg_proc where pronamespace = 'fence'::regnamespace
		and has_function_privilege('public', oid, 'execute')`), "functions that anybody may call")
}

// column returns the one column of text that sql selects.
func column(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []string {
	t.Helper()
	return collect[string](t, pool, sql, args...)
}

// collect returns the one column that sql selects.
func collect[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) []T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return values
}

// refuseTimeline makes a server refuse to tell its timeline.
const refuseTimeline = `alter function pg_catalog.pg_walfile_name(pg_lsn) rename to walfile_name_of_postgres;
	create function pg_catalog.pg_walfile_name(pg_lsn) returns text language plpgsql as $$ begin
		raise exception 'not supported' using errcode = '0A000';
	end $$`

// Where the server refuses to say which timeline it is on, as Amazon Aurora does, everything works
// without it, and the log says so. On a server that tells it, as after a dump and restore, each fence has to be
// claimed anew.
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
	write(t, store, claim(t, store, grant(8, "d")), set("x", 3))
	verifyChain(t, admin)
}

// Products that speak PostgreSQL's protocol, and lack what the fence rests on, are named.
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
