package fencekit_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/guard"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
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

// Each part logs to its own Logger, else to that of the whole.
func TestNew_GivesItsLoggerToPartsWithoutOne(t *testing.T) {
	t.Parallel()
	var whole, own bytes.Buffer
	client, pool := etcdserver.Client(t), migratedPool(t)
	_, err := postgres.Migrate(t.Context(), pool, "other")
	require.NoError(t, err)
	other, err := fencekit.New(client, pool, &fencekit.Config{Lock: etcd.Config{Prefix: t.Name()}, Store: postgres.Config{Schema: "other"}})
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), other, "a", nothing))
	require.NoError(t, other.Close(t.Context()))

	mine, err := etcdserver.Shared(t).Client(t.Context())
	require.NoError(t, err)
	g, err := fencekit.New(mine, pool, &fencekit.Config{
		Lock:   etcd.Config{Prefix: t.Name()},
		Guard:  guard.Config{Observers: []*guard.Observer{{Acquired: func(context.Context, fence.Grant, time.Duration) { panic("observer") }}}},
		Store:  postgres.Config{Logger: slog.New(slog.NewTextHandler(&own, nil))},
		Logger: slog.New(slog.NewTextHandler(&whole, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, guard.Do(t.Context(), g, "a", nothing))
	require.NoError(t, mine.Close())
	require.Error(t, g.Close(t.Context()), "the client was closed first")
	require.Contains(t, whole.String(), "observer", "the Guard's")
	require.Contains(t, whole.String(), "closed before the locker", "the Locker's")
	require.NotContains(t, whole.String(), "other schemas")
	require.Equal(t, 1, strings.Count(own.String(), "other schemas of this database hold fences too"))
}
