package postgres_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/pgproxy"
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
		"role":                       {openPool(t, dsn, as("nosuchrole")), `role "nosuchrole" does not exist`, "check user and password in the DSN", false},
		"database":                   {openPool(t, strings.Replace(dsn, "/app", "/nosuchdb", 1)), `database "nosuchdb" does not exist`, "check the database in the DSN, or create it", false},
		"host":                       {openPool(t, "postgres://nosuchhost.invalid/x"), "lookup nosuchhost.invalid", "check the host in the DSN", true},
		"TLS":                        {openPool(t, strings.Replace(dsn, "sslmode=disable", "sslmode=require", 1)), "server refused TLS connection", "the server has no TLS: turn it on there, or set sslmode in the DSN", false},
		"password, TLS preferred":    {openPool(t, prefer, as("locked"), wrongPassword), "password authentication failed", "check user and password in the DSN", false},
		"connections, TLS preferred": {openPool(t, prefer, as("crowded")), "too many connections for role", "let all pools together have fewer connections", true},
		"server ends, TLS preferred": {openPool(t, "postgres://"+refusesTLSAndEnds(t)+"/x?sslmode=prefer"), "server refused TLS connection", "check host and port in the DSN", true},
		"port":                       {openPool(t, "postgres://127.0.0.1:1/x"), "connection refused", "check host and port in the DSN", true},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t, c.pool, nil)
			_, claimErr := store.Claim(t.Context(), storage.Claim{Grant: grant(5, "a")})
			for _, err := range []error{check(c.pool), claimErr} {
				require.ErrorIs(t, err, storage.ErrStoreUnavailable)
				require.Equal(t, c.retry, guard.SafeToRetry(err))
				require.NotContains(t, err.Error(), "\n")
				require.Equal(t, 1, strings.Count(err.Error(), c.says), err.Error())
				require.ErrorContains(t, err, "("+c.remedy)
			}
		})
	}
}

// refusesTLSAndEnds is the address of a server that has no TLS, and ends while a client logs in.
func refusesTLSAndEnds(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			request := make([]byte, 8)
			if _, err := io.ReadFull(conn, request); err == nil && binary.BigEndian.Uint32(request[4:]) == 80877103 { // SSLRequest
				_, _ = conn.Write([]byte{'N'})
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// A used-up pool and a silent server end in the same deadline, but have different remedies.
func TestStore_DistinguishesAUsedUpPoolFromASilentServer(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	proxy, err := pgproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	c := claim(t, newStore(t, openPool(t, dsn), nil), grant(5, "a"))
	usedUp, silent := openPool(t, dsn, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 }), openPool(t, proxy.DSN())
	taken, err := usedUp.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(taken.Release)
	proxy.Pause(pgproxy.ToServer)
	t.Cleanup(func() { proxy.Resume(pgproxy.ToServer) })
	for want, pool := range map[string]*pgxpool.Pool{
		"postgres: no connection from the pool: all of its connections (MaxConns is 1) are in use: context deadline exceeded":                 usedUp,
		"postgres: no connection from the pool: the server did not answer (0 of at most 8 connections are in use): context deadline exceeded": silent,
	} {
		store := newStore(t, pool, nil)
		for step, f := range map[string]func(ctx context.Context) error{
			"claim": func(ctx context.Context) error { _, err := store.Claim(ctx, storage.Claim{Grant: c.Grant}); return err },
			"begin": func(ctx context.Context) error { _, err := store.Begin(ctx, c); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			err := f(ctx)
			cancel()
			require.EqualError(t, err, want, step)
			require.ErrorIs(t, err, context.DeadlineExceeded, step)
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
