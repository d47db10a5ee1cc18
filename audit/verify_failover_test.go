package audit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A history goes on after a failover, on the next timeline, under new grants.
func TestVerify_FollowsAFailover(t *testing.T) {
	t.Parallel()
	server, err := pgserver.Start(t.Context(), &pgserver.Config{Local: true})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Stop(ctx))
	})
	dsn, err := server.CreateDatabase(t.Context(), "app")
	require.NoError(t, err)
	pool := openPool(t, dsn)
	_, err = postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	h := newHistory(t, pool, 11)
	h.grow(30)
	before := h.claim("sku/1")

	var directory string
	require.NoError(t, pool.QueryRow(t.Context(), "select current_setting('data_directory')").Scan(&directory))
	mustExec(t, pool, "copy (select) to '"+directory+"/standby.signal'")
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool { // connections of before the crash fail once
		_, err := pool.Exec(t.Context(), "select pg_promote()")
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, h.attempt(before), "the grant was claimed before the failover")
	for _, resource := range h.resources {
		h.claim(resource)
	}
	h.grow(30)
	requireHonest(t, verify(t, pool, audit.VerifyOptions{}))
	d, err := audit.Open(pool, "")
	require.NoError(t, err)
	requireHonest(t, verifyExports(t, audit.VerifyOptions{}, export(t, d, "")))
}
