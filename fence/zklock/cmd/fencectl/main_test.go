package main

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/internal/keylock/servicetest"
	"github.com/fencekit/fencekit/fence/zklock"
	"github.com/fencekit/fencekit/internal/test/clitest"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/zookeeperserver"
)

func TestMain(m *testing.M) {
	clitest.Reexec(main)
	testenv.Main(m)
}

func TestCommands(t *testing.T) {
	s, err := zookeeperserver.Start(t.Context())
	require.NoError(t, err)
	defer s.Stop(t.Context())
	session := new(zklock.Session)
	client, _, err := zk.Connect([]string{s.Addr()}, 20*time.Second, zk.WithDialer(session.Dial), zk.WithLogger(quiet{}))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.AddAuth("digest", []byte("shop:s3cret")))
	l, err := zklock.New(client, &zklock.Config{Session: session, Root: "/shop/locks", ACL: zk.AuthACL(zk.PermAll)})
	require.NoError(t, err)
	defer l.Close(t.Context())
	servicetest.Commands(t, "zookeeper://shop:s3cret@"+s.Addr()+"/shop/locks", l)
}
