package pgbouncer

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/internal/testenv/process"
)

// testContext ends a test that hangs; no machine needs that long.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

func startPgBouncer(t *testing.T, p *pgserver.Server, cfg *Config) *Pooler {
	t.Helper()
	b, err := Start(testContext(t), p, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	return b
}

// Clients share server connections from one transaction to the next.
func TestPooler_PoolsTransactions(t *testing.T) {
	ctx := testContext(t)
	b := startPgBouncer(t, pgserver.Shared(t), &Config{PoolSize: 1})
	dsn, err := b.DSN(pgserver.Database(t))
	require.NoError(t, err)
	var pids [2]int
	for i := range pids {
		conn, err := pgx.Connect(ctx, dsn)
		require.NoError(t, err)
		defer conn.Close(ctx)
		require.NoError(t, conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pids[i]))
	}
	require.Equal(t, pids[0], pids[1])
}

func TestPooler_KeepsItsAddressOverKillAndRestart(t *testing.T) {
	ctx := testContext(t)
	b := startPgBouncer(t, pgserver.Shared(t), nil)
	admin := b.adminDSN()
	dsn, err := b.DSN(pgserver.Database(t))
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)

	require.NoError(t, b.Kill())
	require.NoError(t, b.Kill())
	require.Error(t, conn.Ping(ctx))
	require.NoError(t, b.Restart(ctx))
	require.Equal(t, admin, b.adminDSN())
	again, err := pgx.Connect(ctx, dsn+"&default_query_exec_mode=exec")
	require.NoError(t, err)
	defer again.Close(ctx)
	require.NoError(t, again.Ping(ctx))
	require.NoError(t, b.Pause()) // Stop also ends what is paused
	require.NoError(t, b.Stop(ctx))
	require.NoError(t, b.Stop(ctx))
	require.ErrorIs(t, b.Restart(ctx), process.ErrStopped)
}

func TestConfig_SettingsAreStrongerThanOurs(t *testing.T) {
	b := startPgBouncer(t, pgserver.Shared(t), &Config{Settings: map[string]string{"pool_mode": "session"}})
	conn, err := pgx.Connect(testContext(t), b.adminDSN())
	require.NoError(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(testContext(t), "show config", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	settings := map[string]string{}
	for rows.Next() {
		values, err := rows.Values()
		require.NoError(t, err)
		settings[values[0].(string)], _ = values[1].(string)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, "session", settings["pool_mode"])
	require.Equal(t, "4", settings["default_pool_size"])
	_, err = Start(testContext(t), pgserver.Shared(t), &Config{Settings: map[string]string{"pool_mode": "nonsense"}})
	require.ErrorContains(t, err, "pool_mode", "its own words are in the error")
}

func TestFind_SaysWhatWasTriedAndTheInstallCommand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	other := filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\necho something else\n"), 0o755))
	program := installed
	program.Places = []string{"pgbouncer", other}
	_, _, err := program.Find(testContext(t))
	var none *process.NotFoundError
	require.ErrorAs(t, err, &none)
	require.Len(t, none.Attempts, 2)
	for _, part := range []string{"not found", `says "something else"`, "apt-get install pgbouncer"} {
		require.ErrorContains(t, err, part)
	}
	newer := filepath.Join(dir, "pgbouncer")
	require.NoError(t, os.WriteFile(newer, []byte("#!/bin/sh\necho PgBouncer 1.24.1\necho libevent\n"), 0o755))
	path, version, err := program.Find(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []string{newer, "1.24.1"}, []string{path, version})
}
