package postgres_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestNewStore_RejectsBadConfig(t *testing.T) {
	t.Parallel()
	_, err := postgres.NewStore(nil, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)

	pool := openPool(t, pgserver.Database(t))
	for _, field := range []string{"LockTimeout", "StatementTimeout", "IdleTimeout", "NetworkTimeout", "EvictTimeout", "CleanupTimeout", "CheckInterval"} {
		for _, value := range []time.Duration{time.Microsecond, time.Hour + 1, -time.Second} {
			if field == "CheckInterval" && value < 0 {
				continue
			}
			var cfg postgres.Config
			reflect.ValueOf(&cfg).Elem().FieldByName(field).SetInt(int64(value))
			_, err := postgres.NewStore(pool, &cfg)
			require.ErrorIs(t, err, guard.ErrInvalid, field)
			require.ErrorContains(t, err, field)
		}
	}
	_, err = postgres.NewStore(pool, &postgres.Config{LockTimeout: 6 * time.Second})
	require.ErrorIs(t, err, guard.ErrInvalid, "longer than the default StatementTimeout")
	_, err = postgres.NewStore(pool, &postgres.Config{CheckInterval: -1})
	require.NoError(t, err)
}

func TestCheck_OnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	pool := openPool(t, pgserver.Database(t))
	store := newStore(t, pool, nil)
	err := store.Check(t.Context())
	requireNotReady(t, err, postgres.NotMigrated)
	require.ErrorContains(t, err, `fencectl migrate up --schema fence`)
	_, err = postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	require.NoError(t, store.Check(t.Context()), "a failure is not remembered")
	_, err = pool.Exec(t.Context(), "drop schema fence cascade")
	require.NoError(t, err)
	requireNotReady(t, store.Check(t.Context()), postgres.NotMigrated, "nor is a success")
}
