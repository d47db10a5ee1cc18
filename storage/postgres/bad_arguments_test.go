package postgres_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/pgserver"
	"github.com/fencekit/fencekit/storage"
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

func TestStore_RejectsBadArguments(t *testing.T) {
	t.Parallel()
	store := newStore(t, newPool(t), nil)
	_, err := store.Claim(t.Context(), storage.Claim{Grant: fence.Grant{}})
	require.ErrorAs(t, err, new(*fence.InvalidGrantError))
	_, err = store.Begin(t.Context())
	require.ErrorIs(t, err, guard.ErrInvalid)
	c := claim(t, store, grant(5, "a"))
	_, err = attempt(t.Context(), store, set("x", 1), c, c)
	require.ErrorIs(t, err, guard.ErrInvalid, "one resource twice")
}

// With a context that has ended every step fails, and nothing is left behind.
func TestStore_WithAnEndedContext(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	store := newStore(t, pool, nil)
	c := claim(t, store, grant(5, "a"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := store.Claim(ended, storage.Claim{Grant: grant(6, "b")})
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.Begin(ended, c)
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.Resolve(ended, storage.InDoubt{Claims: []storage.Claim{c}, Tx: 1})
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.Entries(ended, resource, 0, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = store.Rejections(ended, resource, 1)
	require.ErrorIs(t, err, context.Canceled)

	txn := begin(t, store, c)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	require.ErrorIs(t, txn.Run(ended, set("x", 2)), context.Canceled)
	txn.Rollback(ended)

	txn = begin(t, store, c)
	require.NoError(t, txn.Run(t.Context(), set("x", 1)))
	_, err = txn.Commit(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorAs(t, err, new(*storage.InDoubtError))

	inside, stop := context.WithCancel(t.Context())
	_, err = attempt(inside, store, do(func(ctx context.Context, tx pgx.Tx) error {
		if err := set("x", 1)(ctx, tx); err != nil {
			return err
		}
		stop()
		return set("x", 2)(ctx, tx)
	}), c)
	require.ErrorIs(t, err, context.Canceled)
	write(t, store, c, set("y", 1))
	holds(t, pool, "x", 0)
	noneInUse(t, pool)
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
