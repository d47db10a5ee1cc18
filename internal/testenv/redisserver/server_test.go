package redisserver

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// testContext ends a test that hangs; no machine needs that long.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), process.StartBound)
	t.Cleanup(cancel)
	return ctx
}

func startRedis(t *testing.T, cfg *Config) *Server {
	t.Helper()
	r, err := Start(testContext(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
	return r
}

func redisClient(t *testing.T, r *Server) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func set(t *testing.T, r *Server, key string) {
	t.Helper()
	require.NoError(t, redisClient(t, r).Set(testContext(t), key, "1", 0).Err())
}

// keys are the keys that a server has.
func keys(t *testing.T, r *Server) []string {
	t.Helper()
	found, err := redisClient(t, r).Keys(testContext(t), "*").Result()
	require.NoError(t, err)
	return found
}

func TestServer_ComesBackEmpty(t *testing.T) {
	ctx := testContext(t)
	r := startRedis(t, nil)
	addr := r.Addr()
	for _, end := range []func() error{r.Kill, func() error { return nil }} {
		set(t, r, "lock")
		require.NoError(t, end())
		require.NoError(t, r.Restart(ctx))
		require.Equal(t, addr, r.Addr())
		require.Empty(t, keys(t, r))
	}
}

func TestServer_PausedIsSilentAndEndsByStop(t *testing.T) {
	ctx := testContext(t)
	r := startRedis(t, nil)
	client := redisClient(t, r)
	require.NoError(t, client.Ping(ctx).Err())
	require.NoError(t, r.Pause())
	// A bound of the connection, which begins when the answer is waited for.
	require.ErrorIs(t, client.WithTimeout(100*time.Millisecond).Set(ctx, "lock", "1", 0).Err(), os.ErrDeadlineExceeded)
	require.NoError(t, r.Resume())
	require.NoError(t, client.Ping(ctx).Err())
	require.NoError(t, r.Pause())
	require.NoError(t, r.Stop(ctx))
	require.NoError(t, r.Stop(ctx))
	require.ErrorIs(t, r.Restart(ctx), process.ErrStopped)
}

func TestFind_SaysWhatWasTriedAndTheInstallCommand(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	other := filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(other, []byte("#!/bin/sh\necho something else\n"), 0o755))
	program := installed
	program.Places = []string{"redis-server", other}
	_, _, err := program.Find(testContext(t))
	var none *process.NotFoundError
	require.ErrorAs(t, err, &none)
	require.Len(t, none.Attempts, 2)
	for _, part := range []string{"no Redis", "not found", `says "something else"`, "apt-get install redis-server"} {
		require.ErrorContains(t, err, part)
	}
	newer := filepath.Join(dir, "redis-server")
	require.NoError(t, os.WriteFile(newer, []byte("#!/bin/sh\necho Redis server v=8.2.1 sha=0\n"), 0o755))
	path, version, err := program.Find(testContext(t))
	require.NoError(t, err)
	require.Equal(t, []string{newer, "8.2.1"}, []string{path, version})
}
