package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv"
)

// startPooler starts a PgBouncer in transaction mode in front of server.
func startPooler(t testing.TB, server *testenv.Postgres, cfg testenv.PgBouncerConfig) *testenv.PgBouncer {
	t.Helper()
	pooler, err := testenv.StartPgBouncer(t.Context(), server, &cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, pooler.Stop(ctx))
	})
	return pooler
}

// unnamed is what a pool needs whose statements meet another server connection
// each time: no prepared statement has a name.
func unnamed(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec }

// openPooled returns a pool on a database, through the pooler.
func openPooled(t testing.TB, pooler *testenv.PgBouncer, dsn string, options ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	through, err := pooler.DSN(dsn)
	require.NoError(t, err)
	return openPool(t, through, append([]func(*pgxpool.Config){unnamed}, options...)...)
}

func TestPooler_PassesTheContract_HB18(t *testing.T) {
	pooler := startPooler(t, testenv.SharedPostgres(t), testenv.PgBouncerConfig{})
	guardtest.TestStore(t, func(t *testing.T) guardtest.Harness[pgx.Tx] {
		return harness(t, openPooled(t, pooler, migrated(t)), nil)
	})
}
