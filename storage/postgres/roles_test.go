package postgres_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newRole(t testing.TB, admin *pgxpool.Pool, name string) string {
	t.Helper()
	role := unique(name)
	mustExec(t, admin, "create role "+role+" login")
	t.Cleanup(func() { dropRole(admin, role) })
	return role
}

func dropRole(admin *pgxpool.Pool, role string) {
	_, _ = admin.Exec(context.Background(), "drop owned by "+role)
	_, _ = admin.Exec(context.Background(), "drop role "+role)
}

func replaceRole(sql, role string) string { return strings.ReplaceAll(sql, "nobody_here", role) }

func as(role string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) { cfg.ConnConfig.User = role }
}

type roles struct {
	dsn                string
	admin, app, reader *pgxpool.Pool
	names              postgres.Roles
}

func newRoles(t testing.TB) roles {
	t.Helper()
	r := roles{dsn: migrated(t), names: postgres.Roles{App: unique("app"), Reader: unique("reader")}}
	r.admin = openPool(t, r.dsn)
	require.NoError(t, postgres.GrantRoles(t.Context(), r.admin, "", r.names))
	for _, name := range []string{r.names.App, r.names.Reader} {
		t.Cleanup(func() { dropRole(r.admin, name) })
	}
	mustExec(t, r.admin, "grant all on item to "+r.names.App)
	r.app, r.reader = openPool(t, r.dsn, as(r.service(t))), openPool(t, r.dsn, as(r.member(t, r.names.Reader)))
	return r
}

func (r roles) member(t testing.TB, of string) string {
	t.Helper()
	role := newRole(t, r.admin, "member")
	mustExec(t, r.admin, "grant "+of+" to "+role)
	return role
}

func (r roles) service(t testing.TB) string {
	t.Helper()
	return r.member(t, r.names.App)
}

func denied(t *testing.T, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := pool.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "42501", sql)
	}
}

func TestRoles_AppCannotTouchFencesAndHistory(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	c := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	for _, table := range []string{"resource", "history", "rejection", "setting", "forget_clock", "migration", "operation", "checkpoint", "hold", "epoch_raise"} {
		table = "fence." + table
		denied(t, r.app, "insert into "+table+" default values", "delete from "+table, "truncate "+table, "drop table "+table,
			"alter table "+table+" disable trigger all", "alter table "+table+" set unlogged", "do $$ begin lock "+table+" in exclusive mode; end $$", "select from "+table+" for update",
			"create trigger t before insert on "+table+" for each row execute function fence.protect_fence()")
	}
	denied(t, r.app,
		"update fence.resource set token = 1", "update fence.history set token = 1", "update fence.setting set epoch = 9",
		"update fence.setting set max_token_jump = 4611686018427387903", "select from fence.setting",
		"set session_replication_role = replica", "create table fence.mine ()", "drop schema fence cascade",
		"create or replace function fence.jump_hint(bigint, bigint, fence.setting) returns text language sql return 'x'",
		"select fence.create_fence('x')", "select fence.pass_marks(2, 5)", "select fence.raise_durability()", "select fence.repair()",
		"select fence.prune('{1}', '{1}')", "select fence.prunable('', '%', '1 hour', 1, 1)", "select fence.prune_rejections('%', '1 hour', 1, false)", "select fence.first_kept(1, 1, 1, null, 1)",
		"create domain fence.mine as int", "alter domain fence.token drop constraint token_bounds", "drop domain fence.token",
		"select nextval('fence.resource_id_seq')", "set role postgres")
	_, err := store.Claim(t.Context(), storage.Claim{Grant: epochGrant(1, 1<<62-1)})
	requireRejected(t, err, storage.ReasonTokenJump)
	write(t, store, c, set("x", 2))
	_, err = store.Prune(t.Context())
	require.NoError(t, err)
	verifyChain(t, r.admin)
}

func TestRoles_ReaderReadsHistoryOnly(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	store := newStore(t, r.app, nil)
	old := write(t, store, claim(t, store, grant(5, "a")), set("x", 1))
	claim(t, store, grant(6, "b"))
	_, err := attempt(t.Context(), store, set("x", 2), old)
	require.ErrorIs(t, err, storage.ErrStaleToken)

	reader := newStore(t, r.reader, nil)
	require.Len(t, kinds(t, reader), 3)
	require.Len(t, recorded(t, reader), 1)
	_, err = reader.Claim(t.Context(), storage.Claim{Grant: grant(7, "c")})
	requireNotReady(t, err, postgres.MissingRights)
	denied(t, r.reader,
		"select fence.claim('{72}', '{1}', '{1}', '{61}', 1)", "select fence.begin_check(1, 1, 1, '1', '1', '1', '1', '1')", "select fence.seal('{1}', '{1}', '{1}', '{61}', '{1}', '{1}', 1, '{61}', '1')",
		"select fence.record_rejection('r', '', '', 1, 1, '', 1, 1, '', null)", "select fence.evict('{72}', '{1}', '{1}', 1, true)", "select fence.forget(1, false)",
		"select result from fence.operation", "delete from fence.migration", "select from fence.forget_clock", "select from item",
		"delete from fence.history", "update fence.resource set token = 1", "insert into fence.rejection default values")
}

// Eviction needs no extra right among sessions of one role; across two roles it needs
// pg_signal_backend. Without that the claim succeeds, and the log says so.
func TestRoles_EvictionAcrossRoles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		same, signal bool
		evicted      bool
	}{
		"one login":                        {same: true, evicted: true},
		"two logins":                       {},
		"two logins and pg_signal_backend": {signal: true, evicted: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoles(t)
			var text logged
			cfg := patient()
			cfg.Logger = slog.New(slog.NewTextHandler(&text, nil))
			successor := r.app
			if !c.same {
				role := r.service(t)
				if c.signal {
					mustExec(t, r.admin, "grant pg_signal_backend to "+role)
				}
				successor = openPool(t, r.dsn, as(role))
			}
			old, newer := newStore(t, r.app, patient()), newStore(t, successor, cfg)
			txn := begin(t, old, claim(t, old, grant(5, "a")))
			require.NoError(t, txn.Run(t.Context(), set("x", 1)))
			claimed := claim(t, newer, grant(6, "b"))
			require.Equal(t, c.evicted, strings.Contains(text.String(), "evicted stale transactions"), text.String())
			require.Equal(t, !c.evicted, strings.Contains(text.String(), "pg_signal_backend"), text.String())
			err := txn.Run(t.Context(), set("y", 1))
			if !c.evicted {
				require.NoError(t, err)
				_, err = txn.Commit(t.Context(), nil)
			}
			require.ErrorIs(t, err, storage.ErrStaleToken)
			write(t, newer, claimed, set("x", 2))
		})
	}
}

func TestGrantRoles_IsIdempotentAndExact(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	rights := func() []string {
		return column(t, r.admin, `
			select 'schema ' || nspacl::text from pg_namespace where nspname = 'fence'
			union all select relname || ' ' || relacl::text from pg_class where relnamespace = 'fence'::regnamespace and relkind in ('r', 'v')
			union all select proname || ' ' || proacl::text from pg_proc where pronamespace = 'fence'::regnamespace
			order by 1`)
	}
	before := rights()
	require.NoError(t, postgres.GrantRoles(t.Context(), r.admin, "", r.names))
	require.Equal(t, before, rights())
	mustExec(t, r.admin, "grant all on schema fence to "+r.names.Reader+"; grant all on all tables in schema fence to "+r.names.Reader+
		"; grant all on all sequences in schema fence to "+r.names.App+"; grant execute on all routines in schema fence to "+r.names.App)
	require.NotEqual(t, before, rights())
	require.NoError(t, postgres.GrantRoles(t.Context(), r.admin, "", r.names))
	require.Equal(t, before, rights())
	require.False(t, query[bool](t, r.admin, "select has_sequence_privilege($1, 'fence.resource_id_seq', 'usage')", r.names.App))
	require.NoError(t, newStore(t, r.app, nil).Check(t.Context()))
}

// After a rollback an earlier version grants what it knows, and leaves the rest.
func TestGrantRoles_LeaveWhatALaterVersionHasGranted(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	mustExec(t, r.admin, "insert into fence.migration (version, name) values (99, 'later'); create table fence.later (); grant select on fence.later to "+r.names.App)
	require.NoError(t, postgres.GrantRoles(t.Context(), r.admin, "", r.names))
	_, err := r.app.Exec(t.Context(), "select from fence.later")
	require.NoError(t, err)
	mustExec(t, r.admin, "delete from fence.migration where version = 99")
	require.NoError(t, postgres.GrantRoles(t.Context(), r.admin, "", r.names))
	denied(t, r.app, "select from fence.later")
}

func TestGrantRoles_RejectsBadRoles(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	owner, member := newRole(t, pool, "owner"), newRole(t, pool, "member")
	mustExec(t, pool, "grant "+owner+" to "+member+"; alter schema fence owner to "+owner)
	for _, roles := range []postgres.Roles{
		{}, {App: "a", Reader: "a"}, {App: "public"}, {Reader: "none"}, {App: "pg_monitor"}, {App: `a"b`}, {App: "a'b"}, {App: "a$role$b"},
		{App: "1a"}, {App: "a b"}, {Reader: "a\x00"}, {App: strings.Repeat("a", 64)},
		{App: "postgres"}, {App: owner}, {Reader: member},
	} {
		require.ErrorIs(t, postgres.GrantRoles(t.Context(), pool, "", roles), guard.ErrInvalid, "%+v", roles)
	}
	require.ErrorIs(t, postgres.GrantRoles(t.Context(), pool, "A", postgres.Roles{App: "a"}), guard.ErrInvalid)
	odd := unique("Über-app.1@x")
	require.NoError(t, postgres.GrantRoles(t.Context(), pool, "", postgres.Roles{App: odd}))
	dropRole(pool, pgx.Identifier{odd}.Sanitize())
	require.ErrorContains(t, postgres.GrantRoles(t.Context(), openPool(t, pgserver.Database(t)), "", postgres.Roles{App: unique("a")}), "3F000")
}

func TestCheck_RejectsTablesThatDoNotKeepTheirRows(t *testing.T) {
	t.Parallel()
	pool, store := fresh(t, nil)
	require.NoError(t, store.Check(t.Context()))
	mustExec(t, pool, "alter table fence.resource set unlogged")
	err := newStore(t, pool, nil).Check(t.Context())
	requireNotReady(t, err, postgres.Unsupported)
	require.ErrorContains(t, err, "would empty fence.resource")
	require.ErrorContains(t, err, "set logged")
	mustExec(t, pool, "alter table fence.resource set logged, enable row level security, force row level security")
	err = newStore(t, pool, nil).Check(t.Context())
	requireNotReady(t, err, postgres.Unsupported)
	require.ErrorAs(t, err, new(*postgres.HiddenRowsError))
	require.ErrorContains(t, err, "fence.resource")
}

// Row-level security hides rows from a service's role before it is forced. What that role can't read anyway may have it.
func TestCheck_RejectsTablesWhoseRowsAreHiddenFromTheRole(t *testing.T) {
	t.Parallel()
	r := newRoles(t)
	change := func(table, to string) {
		mustExec(t, r.admin, "alter table fence."+table+" "+to+" row level security")
	}
	change("setting", "enable")
	c := claim(t, newStore(t, r.app, nil), grant(5, "a"))
	for _, table := range []string{"resource", "operation", "history", "rejection"} {
		change(table, "enable")
		require.NoError(t, newStore(t, r.admin, nil).Check(t.Context()), "the owner sees all rows of %s", table)
		err := newStore(t, r.app, nil).Check(t.Context())
		requireNotReady(t, err, postgres.Unsupported)
		require.ErrorAs(t, err, new(*postgres.HiddenRowsError))
		require.ErrorContains(t, err, "fence."+table)
		change(table, "disable")
	}
	write(t, newStore(t, r.app, nil), c, set("x", 1))
}
