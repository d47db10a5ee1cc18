package postgres_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guardhttp"
	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

// The error of a failed login says so once, on one line, with what to check.
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
	for _, database := range []string{"private"} {
		mustExec(t, admin, "create database "+database)
	}
	mustExec(t, admin, "revoke connect on database private from public")
	on := func(database string) string { return strings.Replace(dsn, "/app", "/"+database, 1) }
	parameter := func(name, value string) *pgxpool.Pool { return openPool(t, dsn, with(map[string]string{name: value})) }
	wrongPassword := func(cfg *pgxpool.Config) { cfg.ConnConfig.Password = "wrong" }
	locked := openPool(t, dsn, as("locked"), wrongPassword)
	prefer := strings.Replace(dsn, "sslmode=disable", "sslmode=prefer", 1) // the default: without TLS if the server has none
	check := func(pool *pgxpool.Pool) error { return newStore(t, pool, nil).Check(t.Context()) }
	require.Eventually(t, func() bool { return strings.Contains(check(locked).Error(), "28P01") }, time.Minute, 10*time.Millisecond)
	for name, c := range map[string]struct {
		pool         *pgxpool.Pool
		says, remedy string
		retry        bool
	}{
		"password":                   {locked, "password authentication failed", "check user and password in the DSN", false},
		"database":                   {openPool(t, strings.Replace(dsn, "/app", "/nosuchdb", 1)), `database "nosuchdb" does not exist`, "check the database in the DSN, or create it", false},
		"host":                       {openPool(t, "postgres://nosuchhost.invalid/x"), "lookup nosuchhost.invalid", "check the host in the DSN", true},
		"TLS":                        {openPool(t, strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)), "server refused TLS connection", "the server has no TLS: turn it on there, or set sslmode in the DSN", false},
		"connections, TLS preferred": {openPool(t, prefer, as("crowded")), "too many connections for role", "let all pools of this role together have fewer connections", true},
		"right to connect":           {openPool(t, on("private"), as("stranger")), `permission denied for database "private"`, "grant connect on database DATABASE to ROLE", false},
		"mistyped parameter":         {parameter("statement_timeuot", "5s"), `unrecognized configuration parameter "statement_timeuot"`, "correct the parameter in the DSN", false},
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

// afterConnect makes a pool run sql on each connection that it has made.
func afterConnect(sql string) func(*pgxpool.Config) {
	return func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, sql)
			return err
		}
	}
}

// A pooler in statement mode has no transactions. The first check says so, instead of
// calling the database unreachable.
func TestPooler_InStatementModeIsNamed(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	pooler := startPooler(t, pgserver.Shared(t), pgbouncer.Config{Settings: map[string]string{"pool_mode": "statement"}})
	store := newStore(t, openPooled(t, pooler, dsn), nil)
	_, claimErr := store.Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
	_, beginErr := attempt(t.Context(), store, statement("select 1"), claim(t, newStore(t, openPool(t, dsn), nil), grant(5, "a")))
	for what, err := range map[string]error{"check": store.Check(t.Context()), "claim": claimErr, "begin": beginErr} {
		requireNotReady(t, err, postgres.Unsupported, what)
		require.NotErrorIs(t, err, storage.ErrStoreUnavailable, what)
		require.ErrorContains(t, err, "set pool_mode to transaction or session", what)
	}
}
