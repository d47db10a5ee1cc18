package etcdserver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

var shared = process.NewShared(func(ctx context.Context) (*Server, error) { return Start(ctx, nil) })

// Shared returns the etcd that the tests of this binary share. A test that
// kills, pauses or restarts it disturbs the others: Start is for that. The
// test fails if it can't be started.
func Shared(t testing.TB) *Server {
	t.Helper()
	e, err := shared.Get()
	require.NoError(t, err)
	return e
}

// Client returns a fresh client to the shared etcd; it is closed when the
// test ends.
func Client(t testing.TB) *clientv3.Client {
	t.Helper()
	client, err := Shared(t).Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
