package fault_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/guard/guardtest"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Verification finds the entry that the fault changed, and the history is as protected as before.
func TestTamper_ChangesAnEntry(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(context.Background(), pgserver.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	_, err = postgres.Migrate(patient(t), pool, "")
	require.NoError(t, err)
	store, err := postgres.NewStore(pool, nil)
	require.NoError(t, err)
	g := guardtest.New(t, store)
	s := &site{database: pool}
	requireMissed(brief(t), t, fault.Tamper{}, s) // there is no write yet
	for range 3 {
		require.NoError(t, guard.Do(patient(t), g, "sku/1", func(context.Context, pgx.Tx) error { return nil }))
	}
	injectOnce(t, fault.Tamper{Index: 1}, s)

	history, err := audit.Open(pool, "")
	require.NoError(t, err)
	report, err := history.Verify(patient(t), audit.VerifyOptions{})
	require.NoError(t, err)
	require.Len(t, report.Findings, 1)
	require.Equal(t, int64(3), report.Findings[0].Seq) // after a claim and a write
}
