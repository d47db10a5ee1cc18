// Package etcdtest is what the tests of the lock service on etcd, and of the packages that it
// is made of, share.
package etcdtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// Patience bounds waits for what has to happen; no test depends on its length.
const Patience = 60 * time.Second

// Patient returns a context that only ends when the test has failed anyhow.
func Patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Receive waits for c's next value, or for its end.
func Receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-Patient(t).Done():
		require.FailNow(t, "waited in vain")
		panic("not reached")
	}
}

// Dial returns a client that is closed with the test, if it isn't yet.
func Dial(t testing.TB, endpoint string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialOptions: opts})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// AwaitKeys waits until there are n keys under the prefix, and returns them by
// create revision.
func AwaitKeys(t testing.TB, client *clientv3.Client, prefix string, n int) []*mvccpb.KeyValue {
	t.Helper()
	ctx, cancel := context.WithCancel(Patient(t))
	defer cancel()
	resp, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	if len(resp.Kvs) == n {
		return resp.Kvs
	}
	changes := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(resp.Header.Revision+1))
	for {
		got, ok := <-changes
		require.True(t, ok, "waiting for %d keys under %s", n, prefix)
		require.NoError(t, got.Err())
		resp, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		require.NoError(t, err)
		if len(resp.Kvs) == n {
			return resp.Kvs
		}
	}
}
