package fencekit_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/storage/postgres"
)

// A Guard that is to prune goes on after a failure, says what it did, and stops when it is
// closed. That no goroutine is left is seen by TestMain.
func TestGuard_PrunesRegularlyUntilClose(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer // written by the pruning goroutine alone, and read after its end
	pool := emptyPool(t)
	g, _ := newGuard(t, awayClient(t), pool, fencekit.Config{PruneEvery: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	eventually := func(sql string) {
		t.Helper()
		require.Eventually(t, func() bool {
			var ok bool
			return pool.QueryRow(context.Background(), sql).Scan(&ok) == nil && ok
		}, time.Minute, 10*time.Millisecond, sql)
	}
	// It fails before there are tables, by the server's count of what was rolled back.
	eventually("select xact_rollback > 0 from pg_stat_database where datname = current_database()")
	_, err := postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `update fence.setting set history_keep = '1 hour';
		insert into fence.rejection (resource, reason, stage, epoch, token, holder, current_epoch, current_token, current_holder, last_at)
		values ('a', 'stale', 'seal', 1, 1, 'a', 1, 2, 'b', now() - interval '2 hours')`)
	require.NoError(t, err)
	eventually("select count(*) = 0 from fence.rejection")
	require.NoError(t, g.Close(t.Context()))
	require.NoError(t, g.Close(t.Context()), "again")
	require.Contains(t, log.String(), "pruning failed")
	require.Contains(t, log.String(), "pruned.rejections=1")
}
