package main

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/fence/redislock"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/redisserver"
)

func TestMain(m *testing.M) {
	clitest.Reexec(main)
	testenv.Main(m)
}

func TestCommands(t *testing.T) {
	s, err := redisserver.Start(t.Context())
	require.NoError(t, err)
	defer s.Stop(t.Context())
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	l, err := redislock.New(client, &redislock.Config{Prefix: "a*", TTL: time.Hour})
	require.NoError(t, err)
	defer l.Close(t.Context())
	require.NoError(t, client.Set(t.Context(), "ab{:other}:lock", "p\nh\n1\n", 0).Err())
	servicetest.Commands(t, "redis://"+s.Addr()+"?prefix=a*", l)
}
