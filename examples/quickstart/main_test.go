package main

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/pgserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A newcomer's servers are new: the program makes its tables, sells, and can be run again
// until nothing is left.
func TestQuickstart_RunsOnNewServersUntilAllIsSold(t *testing.T) {
	for name, endpoint := range map[string]string{"Postgres": "", "etcd and Postgres": etcdserver.Shared(t).Endpoint()} {
		t.Run(name, func(t *testing.T) { sellsAll(t, endpoint) })
	}
}

func sellsAll(t *testing.T, endpoint string) {
	dsn := pgserver.Database(t)
	t.Setenv("DATABASE_URL", "")
	require.ErrorContains(t, run(t.Context()), "set DATABASE_URL")
	t.Setenv("ETCD_ENDPOINT", endpoint)
	t.Setenv("DATABASE_URL", dsn)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	defer pool.Close()
	for want := 8; want >= 0; want -= 2 {
		require.NoError(t, run(t.Context()))
		var qty int
		require.NoError(t, pool.QueryRow(t.Context(), "select qty from stock where sku = '42'").Scan(&qty))
		require.Equal(t, want, qty)
	}
	require.ErrorIs(t, run(t.Context()), errSoldOut)
}
