package main

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/fence/zklock"
	"github.com/fencekit/fencekit/internal/cli/clitest"
	"github.com/fencekit/fencekit/internal/testenv"
	"github.com/fencekit/fencekit/internal/testenv/zookeeperserver"
)

func TestMain(m *testing.M) {
	clitest.Reexec(main)
	_ = os.Unsetenv("FENCEKIT_LOCKS")
	testenv.Main(m)
}

func TestLocks_AreShownTakenAndTakenAway(t *testing.T) {
	s, err := zookeeperserver.Start(t.Context())
	require.NoError(t, err)
	defer s.Stop(t.Context())
	session := new(zklock.Session)
	client, _, err := zk.Connect([]string{s.Addr()}, 20*time.Second, zk.WithDialer(session.Dial), zk.WithLogger(quiet{}))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.AddAuth("digest", []byte("shop:s3cret")))
	l, err := zklock.New(client, &zklock.Config{Session: session, Root: "/shop/locks", ACL: zk.AuthACL(zk.PermAll), Label: "shop-1"})
	require.NoError(t, err)
	defer l.Close(t.Context())
	held, err := l.Acquire(t.Context(), "sku/{42}")
	require.NoError(t, err)

	at := "zookeeper://shop:s3cret@" + s.Addr() + "/shop/locks"
	run := func(code int, args ...string) string {
		out, err := clitest.Child(t, []string{"FENCEKIT_LOCKS=" + at}, args...).CombinedOutput()
		require.Equal(t, code, clitest.ExitCode(t, func() error { return err }), "%s", out)
		return string(out)
	}
	list := run(0, "locks", "list")
	require.Contains(t, list, "sku/{42}")
	require.Contains(t, list, held.Grant().Holder)
	require.Contains(t, run(124, "exec", "sku/{42}", "--wait", "0s", "--", "true"), "is locked")
	run(0, "locks", "evict", "sku/{42}", "--expected-token", fmt.Sprint(held.Grant().Token), "--reason", "test")
	require.Contains(t, run(0, "locks", "list"), "nothing is held or waited for at zookeeper://")
	require.Contains(t, run(0, "exec", "sku/{42}", "--", "sh", "-c", "echo token $FENCEKIT_TOKEN"), "token ")
}
