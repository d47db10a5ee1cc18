package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// newPool returns a pool on a fresh, migrated database, with the tables that
// tests work on.
func newPool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return openPool(t, migrated(t))
}

func migrated(t testing.TB) (dsn string) {
	t.Helper()
	dsn = testenv.Database(t)
	pool := openPool(t, dsn)
	_, err := postgres.Migrate(t.Context(), pool, "")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "create table item (key text primary key, value bigint not null)")
	require.NoError(t, err)
	pool.Close()
	return dsn
}

func openPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func newStore(t testing.TB, pool *pgxpool.Pool, cfg *postgres.Config) *postgres.Store {
	t.Helper()
	store, err := postgres.NewStore(pool, cfg)
	require.NoError(t, err)
	return store
}

func grant(token fence.Token, holder string) fence.Grant {
	return fence.Grant{Resource: "sku/1", Epoch: 1, Token: token, Holder: holder}
}
