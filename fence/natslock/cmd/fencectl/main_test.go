package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/fence/natslock"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv"
)

func TestMain(m *testing.M) {
	clitest.Reexec(main)
	testenv.Main(m)
}

func TestCommands(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	require.NoError(t, err)
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	require.True(t, s.ReadyForConnections(time.Minute))
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	other, err := natslock.New(js, nil)
	require.NoError(t, err)
	defer other.Close(t.Context())
	_, err = other.Acquire(t.Context(), "other")
	require.NoError(t, err)
	l, err := natslock.New(js, &natslock.Config{Bucket: "a", TTL: time.Hour})
	require.NoError(t, err)
	defer l.Close(t.Context())
	servicetest.Commands(t, s.ClientURL()+"?bucket=a", l)
}
