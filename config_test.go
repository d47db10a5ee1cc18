package fencekit_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/pglock"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// away is a pool on a Postgres that isn't there, and a Locker on it whose TTL is a second.
func away(t *testing.T) (*pgxpool.Pool, *pglock.Locker) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	locker, err := pglock.New(pool, &pglock.Config{TTL: time.Second})
	require.NoError(t, err)
	return pool, locker
}

func TestNew_RejectsWhatDoesntFitAndSaysWhatToSet(t *testing.T) {
	t.Parallel()
	pool, brief := away(t)
	for name, c := range map[string]struct {
		cfg  fencekit.Config
		says string
	}{
		"statements as long as the default TTL": {
			fencekit.Config{Store: postgres.Config{StatementTimeout: 10 * time.Second}},
			"fencekit.Config: the Locker's TTL is 10s, and Store.StatementTimeout is 10s: set it below the TTL, or leave it unset",
		},
		"statements as long as the TTL": {fencekit.Config{Locker: brief, Store: postgres.Config{StatementTimeout: time.Second}}, "the Locker's TTL is 1s"},
		"a nil pointer":                 {fencekit.Config{Locker: (*pglock.Locker)(nil)}, "Config.Locker is a nil pointer"},
		"pruning all the time":          {fencekit.Config{Locker: brief, PruneEvery: 1}, "Config.PruneEvery"},
		"the Guard's own":               {fencekit.Config{Locker: brief, Guard: guard.Config{MaxRun: -1}}, "Config.MaxRun"},
		"the store's own":               {fencekit.Config{Locker: brief, Store: postgres.Config{Schema: "No"}}, "schema name"},
	} {
		_, err := fencekit.New(pool, &c.cfg)
		require.ErrorIs(t, err, guard.ErrInvalid, name)
		require.ErrorContains(t, err, c.says, name)
	}
	for _, cfg := range []*fencekit.Config{nil, {Locker: brief}} {
		_, err := fencekit.New(nil, cfg)
		require.ErrorIs(t, err, guard.ErrInvalid)
		require.ErrorContains(t, err, "pool")
	}
	require.ErrorIs(t, brief.Check(t.Context()), fence.ErrUnavailable, "it was not taken over")
	for _, cfg := range []fencekit.Config{
		{Locker: brief}, // the default of StatementTimeout fits
		{Store: postgres.Config{StatementTimeout: 10*time.Second - 1}},
	} {
		g, err := fencekit.New(pool, &cfg)
		require.NoError(t, err)
		require.NoError(t, g.Close(t.Context()))
	}
	require.ErrorIs(t, brief.Check(t.Context()), fence.ErrClosed)
}
