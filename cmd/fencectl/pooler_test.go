package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/testenv/pgbouncer"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
)

// A pooler in transaction mode gives each command another server connection, which
// knows none of its prepared statements, or has one of that name already.
func TestMigrate_WorksBehindAPoolerInTransactionMode(t *testing.T) {
	t.Parallel()
	pooler, err := pgbouncer.Start(t.Context(), pgserver.Shared(t), &pgbouncer.Config{PoolSize: 1})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, pooler.Stop(ctx))
	})
	dsn, err := pooler.DSN(pgserver.Database(t))
	require.NoError(t, err)
	for range 3 {
		for _, command := range []string{"up", "status"} {
			got := fencectl(t, "migrate", command, "--database-url", dsn)
			require.Equal(t, cli.ExitOK, got.Code, got.Stderr)
		}
	}
}
