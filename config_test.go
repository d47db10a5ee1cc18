package fencekit_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/storage/postgres"
)

// awayClient is a client of an etcd that isn't there.
func awayClient(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(etcd.ClientConfig("http://127.0.0.1:1"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// awayPool is a pool on a Postgres that isn't there, and the number of its attempts to connect.
func awayPool(t *testing.T) (pool *pgxpool.Pool, attempts *int) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig("postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	attempts = new(int)
	cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { *attempts++; return nil }
	pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, attempts
}

// What New rejects, and what its error says to set.
var invalid = map[string]struct {
	cfg  fencekit.Config
	says string
}{
	"statements as long as the default TTL": {
		fencekit.Config{Store: postgres.Config{StatementTimeout: 10 * time.Second}},
		"fencekit.Config: Lock.TTL is 10s, and Store.StatementTimeout is 10s: set it below Lock.TTL, or leave it unset",
	},
	"the lock service's own": {fencekit.Config{Lock: etcd.Config{TTL: time.Millisecond}}, "etcd.Config.TTL"},
	"the Guard's own":        {fencekit.Config{Guard: guard.Config{MaxRun: -1}}, "Config.MaxRun"},
	"the store's own":        {fencekit.Config{Store: postgres.Config{Schema: "No"}}, "schema name"},
}

func TestNew_RejectsLimitsThatDontFitAndSaysWhatToSet(t *testing.T) {
	t.Parallel()
	client := awayClient(t)
	pool, _ := awayPool(t)
	for name, c := range invalid {
		_, err := fencekit.New(client, pool, &c.cfg)
		require.ErrorIs(t, err, guard.ErrInvalid, name)
		require.ErrorContains(t, err, c.says, name)
	}
	for _, cfg := range []fencekit.Config{
		{Lock: etcd.Config{TTL: time.Second}},
		{Store: postgres.Config{StatementTimeout: time.Second}},
		{Store: postgres.Config{StatementTimeout: 10*time.Second - 1}},
	} {
		g, err := fencekit.New(client, pool, &cfg)
		require.NoError(t, err)
		require.NoError(t, g.Close(t.Context()))
	}
	_, err := fencekit.New(nil, pool, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorContains(t, err, "client")
	_, err = fencekit.New(client, nil, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
	require.ErrorContains(t, err, "pool")
	require.NoError(t, client.Close())
	_, err = fencekit.New(client, pool, nil)
	require.ErrorIs(t, err, guard.ErrInvalid)
}
