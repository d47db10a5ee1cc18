package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/redislock"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/redisserver"
)

func TestMain(m *testing.M) {
	clitest.Reexec(main)
	_ = os.Unsetenv("FENCEKIT_LOCKS")
	testenv.Main(m)
}

func TestLocks_AreShownTakenAndTakenAway(t *testing.T) {
	s, err := redisserver.Start(t.Context())
	require.NoError(t, err)
	defer s.Stop(t.Context())
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	l, err := redislock.New(client, &redislock.Config{Prefix: "a*", TTL: time.Hour, Label: "shop-1"})
	require.NoError(t, err)
	defer l.Close(t.Context())
	held, err := l.Acquire(t.Context(), "sku/{42}")
	require.NoError(t, err)
	require.NoError(t, client.Set(t.Context(), "ab{:other}:lock", "p\nh\n1", 0).Err())

	at := "redis://" + s.Addr() + "?prefix=a*"
	run := func(code int, args ...string) string {
		out, err := clitest.Child(t, []string{"FENCEKIT_LOCKS=" + at}, args...).CombinedOutput()
		require.Equal(t, code, clitest.ExitCode(t, func() error { return err }), "%s", out)
		return string(out)
	}
	list := run(0, "locks", "list")
	require.Contains(t, list, "sku/{42}")
	require.Contains(t, list, held.Grant().Holder)
	require.NotContains(t, list, "other")
	require.Contains(t, run(124, "exec", "sku/{42}", "--wait", "0s", "--", "true"), "is locked")
	run(1, "locks", "evict", "sku/{42}", "--expected-token", "9", "--reason", "test")
	run(0, "locks", "evict", "sku/{42}", "--expected-token", fmt.Sprint(held.Grant().Token), "--reason", "test")
	require.Contains(t, run(0, "locks", "list"), "nothing is held or waited for at redis://")
	require.Contains(t, run(0, "exec", "sku/{42}", "--", "sh", "-c", "echo token $FENCEKIT_TOKEN"), "token 2\n")
	require.Contains(t, run(64, "locks", "list", "--locks", "nats://a:s3cret@b"), "reaches no nats")
	require.NotContains(t, run(64, "locks", "list", "--locks", "redis://a:s3cret@b:x"), "s3cret")
	require.Contains(t, run(3, "locks", "evictions"), "keeps no record")
}
