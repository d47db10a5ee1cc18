package etcd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// patience bounds waits for what has to happen; no test depends on its length.
const patience = 60 * time.Second

// patient returns a context that only ends when the test has failed anyhow.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// fresh returns a config whose prefix is the test's own.
func fresh(t testing.TB) *Config {
	return &Config{Prefix: t.Name() + "-" + newNonce(), TTL: 30 * time.Second, RequestTimeout: 20 * time.Second}
}

// newTestLocker returns a locker that is closed with the test.
func newTestLocker(t testing.TB, client *clientv3.Client, cfg *Config) *Locker {
	t.Helper()
	l, err := NewLocker(client, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = l.Close(ctx) // some tests leave etcd unreachable
	})
	return l
}

func acquire(t testing.TB, l *Locker, resource string) fence.Lease {
	t.Helper()
	le, err := l.Acquire(patient(t), resource)
	require.NoError(t, err)
	return le
}

func release(t testing.TB, le fence.Lease) {
	t.Helper()
	require.NoError(t, le.Release(patient(t)))
}
