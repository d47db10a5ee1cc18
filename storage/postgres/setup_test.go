package postgres_test

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMigrate_AppliesEachOnce(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgserver.Database(t))
	known, err := postgres.MigrationStatus(t.Context(), pool, "")
	require.NoError(t, err)
	var calls []<-chan result[[]postgres.Migration]
	for range 3 {
		calls = append(calls, background(func() ([]postgres.Migration, error) { return postgres.Migrate(context.Background(), pool, "") }))
	}
	applied := 0
	for _, call := range calls {
		r := <-call
		require.NoError(t, r.err)
		applied += len(r.value)
	}
	require.Equal(t, len(known), applied)
	again, err := postgres.Migrate(t.Context(), pool, postgres.DefaultSchema)
	require.NoError(t, err)
	require.Empty(t, again)
	status, err := postgres.MigrationStatus(t.Context(), pool, "")
	require.NoError(t, err)
	for i, m := range status {
		require.True(t, m.Applied())
		require.False(t, known[i].Applied())
		require.False(t, i > 0 && m.Version <= status[i-1].Version)
		require.NotEmpty(t, m.Name)
	}
	claim(t, newStore(t, pool, nil), grant(5, "a"))
}

func TestMigrate_WithoutRightsChangesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgserver.Database(t)
	admin := openPool(t, dsn)
	pool := openPool(t, dsn, as(newRole(t, admin, "guest")))
	applied, err := postgres.Migrate(t.Context(), pool, "")
	require.ErrorContains(t, err, "42501")
	requireNotReady(t, err, postgres.MissingRights)
	require.ErrorContains(t, err, "grant create on database DATABASE to ROLE")
	require.Empty(t, applied)
	require.False(t, query[bool](t, admin, "select exists (select from pg_namespace where nspname = 'fence')"))
	_, err = postgres.Migrate(t.Context(), admin, "")
	require.NoError(t, err)
	_, err = newStore(t, pool, nil).Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
	require.ErrorContains(t, err, "42501")
	requireNotReady(t, err, postgres.MissingRights)
}

// A second schema with fences in one database, whatever its name, may be a mistake that no rejection shows: the
// first check of a store on either of them logs a warning.
func TestCheck_WarnsOfAnotherSchemaWithFences(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	warned := func(schema string) string {
		var text logged
		store := newStore(t, pool, &postgres.Config{Schema: schema, Logger: slog.New(slog.NewTextHandler(&text, nil))})
		require.NoError(t, store.Check(t.Context()))
		return text.String()
	}
	claim(t, newStore(t, pool, nil), grant(5, "a"))
	require.Empty(t, warned("fence"))
	_, err := postgres.Migrate(t.Context(), pool, "user")
	require.NoError(t, err)
	require.Empty(t, warned("fence"), "no fence in it")
	require.Contains(t, warned("user"), "schema=user others=fence")
	claim(t, newStore(t, pool, &postgres.Config{Schema: "user"}), grant(5, "a"))
	require.Contains(t, warned("fence"), "schema=fence others=user")
}

// If a role lacks a right, the first check says so, with the command to run, instead of an
// eviction that fails silently.
func TestCheck_NamesMissingRights(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	owner := openPool(t, dsn)
	role := newRole(t, owner, "service")
	pool := openPool(t, dsn, as(role))
	for _, g := range []struct{ lacking, sql string }{
		{"permission denied for schema", "grant usage on schema fence to "},
		{"permission denied for table migration", "grant select on fence.migration to "},
		{"execute on fence.claim(", "grant execute on all functions in schema fence to "},
		{"select on fence.history, ", ""},
	} {
		err := newStore(t, pool, nil).Check(t.Context())
		requireNotReady(t, err, postgres.MissingRights)
		require.ErrorContains(t, err, g.lacking)
		require.ErrorContains(t, err, "fencectl migrate up --schema fence --app-role ROLE")
		if g.sql == "" {
			require.NoError(t, postgres.GrantRoles(t.Context(), owner, "", postgres.Roles{App: role}))
		} else {
			mustExec(t, owner, g.sql+role)
		}
	}
	store := newStore(t, pool, nil)
	require.NoError(t, store.Check(t.Context()))
	write(t, store, claim(t, store, grant(5, "a")), statement("select 1"))
	_, err := store.Entries(t.Context(), resource, 0, 10)
	require.NoError(t, err, "the remedy in the message suffices")
}

func TestRun_NamesTheLimitThatWasReached(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	claimed := claim(t, newStore(t, pool, patient()), grant(5, "a"))
	blocker := locked(t, pool, "lock table item in share mode")
	idle := do(func(ctx context.Context, tx pgx.Tx) error {
		if err := statement("select 1")(ctx, tx); err != nil {
			return err
		}
		// Until the server has ended the session, which it does by itself.
		eventually(t, pool, "select count(*) = 0 from pg_stat_activity where state = 'idle in transaction' and pid <> $1 and datname = current_database()", blocker.Conn().PgConn().PID())
		return statement("select 1")(ctx, tx)
	})
	for says, c := range map[string]struct {
		limit func(cfg *postgres.Config, times *postgres.Times) // of one kind alone: another one could be reached first
		op    storage.Op[pgx.Tx]
	}{
		"100ms, two fifths of postgres.Config.StatementTimeout": {func(_ *postgres.Config, times *postgres.Times) { times.Lock = 100 * time.Millisecond }, set("a", 1)},
		"postgres.Config.StatementTimeout is 200ms": {func(cfg *postgres.Config, times *postgres.Times) {
			times.Lock, cfg.StatementTimeout = 200*time.Millisecond, 200*time.Millisecond
		}, statement("select pg_sleep(60)")},
		"postgres.Config.StatementTimeout, 100ms": {func(_ *postgres.Config, times *postgres.Times) { times.Idle = 100 * time.Millisecond }, idle},
	} {
		cfg := patient()
		c.limit(cfg, cfg.Times())
		_, err := attempt(t.Context(), newStore(t, pool, cfg), c.op, claimed)
		require.ErrorContains(t, err, says)
	}
}

func TestStore_RejectsBadArguments(t *testing.T) {
	t.Parallel()
	_, err := postgres.NewStore(nil, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	pool := openPool(t, pgserver.Database(t))
	for field, bad := range map[string][]postgres.Config{
		"StatementTimeout": {{StatementTimeout: time.Microsecond}, {StatementTimeout: time.Hour + 1}, {StatementTimeout: -time.Second}},
		"Isolation":        {{Isolation: pgx.ReadUncommitted}, {Isolation: "SERIALIZABLE"}, {Isolation: "serializable; commit"}},
		"Shard": {
			{Shard: postgres.Shard{Index: 1, Count: 1}}, {Shard: postgres.Shard{Index: -1, Count: 2}}, {Shard: postgres.Shard{Index: 1}}, {Shard: postgres.Shard{Count: 1001}},
		},
	} {
		for _, cfg := range bad {
			_, err := postgres.NewStore(pool, &cfg)
			require.ErrorIs(t, err, guard.ErrInvalid)
			require.ErrorContains(t, err, "postgres.Config."+field)
		}
	}
	for _, limit := range []int{0, -1} {
		_, err := newStore(t, pool, nil).Entries(t.Context(), resource, 0, limit)
		require.ErrorIs(t, err, guard.ErrInvalid)
		_, err = newStore(t, pool, nil).Rejections(t.Context(), resource, limit)
		require.ErrorIs(t, err, guard.ErrInvalid)
	}
	for _, schema := range []string{"A", "a b", `a"b`, "a;b", "a.b", "ä", "1a", "a-b", strings.Repeat("s", 41), "a\x00"} {
		_, err := postgres.NewStore(pool, &postgres.Config{Schema: schema})
		require.ErrorIs(t, err, guard.ErrInvalid, schema)
		_, err = postgres.Migrate(t.Context(), pool, schema)
		require.ErrorIs(t, err, guard.ErrInvalid, schema)
		_, err = postgres.MigrationStatus(t.Context(), pool, schema)
		require.ErrorIs(t, err, guard.ErrInvalid, schema)
		_, err = postgres.Migrations(schema)
		require.ErrorIs(t, err, guard.ErrInvalid, schema)
	}
}

func TestCheck_SaysWhyNoConnectionWasMade(t *testing.T) {
	t.Parallel()
	_, dsn := startServer(t, map[string]string{"max_connections": "20"})
	admin := openPool(t, dsn)
	mustExec(t, admin, "create role locked login password 'right'")
	mustExec(t, admin, `do $$ begin execute format('copy (values (''host all locked all scram-sha-256''), (''host all all all trust''), (''local all all trust'')) to %L',
		current_setting('hba_file')); end $$`)
	mustExec(t, admin, "select pg_reload_conf()")
	mustExec(t, admin, "create role crowded login connection limit 0")
	mustExec(t, admin, "create role stranger login")
	mustExec(t, admin, "create database private")
	mustExec(t, admin, "revoke connect on database private from public")
	on := func(database string) string { return strings.Replace(dsn, "/app", "/"+database, 1) }
	locked := openPool(t, dsn, as("locked"), func(cfg *pgxpool.Config) { cfg.ConnConfig.Password = "wrong" })
	prefer := strings.Replace(dsn, "sslmode=disable", "sslmode=prefer", 1) // the default: without TLS if the server has none
	check := func(pool *pgxpool.Pool) error { return newStore(t, pool, nil).Check(t.Context()) }
	require.Eventually(t, func() bool { return strings.Contains(check(locked).Error(), "28P01") }, time.Minute, 10*time.Millisecond)
	for name, c := range map[string]struct {
		pool         *pgxpool.Pool
		says, remedy string
		retry        bool
	}{
		"password":                   {locked, "password authentication failed", "check user and password in the DSN", false},
		"database":                   {openPool(t, on("nosuchdb")), `database "nosuchdb" does not exist`, "check the database in the DSN, or create it", false},
		"host":                       {openPool(t, "postgres://nosuchhost.invalid/x"), "lookup nosuchhost.invalid", "check the host in the DSN", true},
		"TLS":                        {openPool(t, strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)), "server refused TLS connection", "the server has no TLS: turn it on there, or set sslmode in the DSN", false},
		"connections, TLS preferred": {openPool(t, prefer, as("crowded")), "too many connections for role", "let all pools of this role together have fewer connections", true},
		"right to connect":           {openPool(t, on("private"), as("stranger")), `permission denied for database "private"`, "grant connect on database DATABASE to ROLE", false},
		"mistyped parameter":         {openPool(t, dsn, with(map[string]string{"statement_timeuot": "5s"})), `unrecognized configuration parameter "statement_timeuot"`, "correct the parameter in the DSN", false},
		"hook of the pool, cut off":  {openPool(t, dsn, afterConnect("select pg_terminate_backend(pg_backend_pid())")), "terminating connection", "the server or the pooler in front of it takes no work now", true},
		"port":                       {openPool(t, "postgres://127.0.0.1:1/x"), "connection refused", "check host and port in the DSN", true},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, c.pool, nil)
			_, claimErr := store.Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
			for _, err := range []error{check(c.pool), claimErr} {
				require.ErrorIs(t, err, storage.ErrStoreUnavailable)
				require.Equal(t, c.retry, guard.SafeToRetry(err), err)
				require.Equal(t, map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusInternalServerError}[c.retry], guardhttp.Status(err))
				require.NotContains(t, err.Error(), "\n")
				require.Equal(t, 1, strings.Count(err.Error(), c.says), err.Error())
				require.ErrorContains(t, err, "("+c.remedy)
			}
		})
	}
}

func afterConnect(sql string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sql)
			return err
		}
	}
}

// A pooler in statement mode has no transactions. The first check says so, instead of calling the database unreachable.
func TestPooler_InStatementModeIsNamed(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pooler := startPooler(t, pgserver.Shared(t), map[string]string{"pool_mode": "statement"})
	store := newStore(t, openPooled(t, pooler, dsn), nil)
	_, claimErr := store.Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
	_, beginErr := attempt(t.Context(), store, statement("select 1"), claim(t, newStore(t, openPool(t, dsn), nil), grant(5, "a")))
	for what, err := range map[string]error{"check": store.Check(t.Context()), "claim": claimErr, "begin": beginErr} {
		requireNotReady(t, err, postgres.Unsupported, what)
		require.NotErrorIs(t, err, storage.ErrStoreUnavailable, what)
		require.ErrorContains(t, err, "set pool_mode to transaction or session", what)
	}
}
