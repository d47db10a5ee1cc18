package queue

import (
	"context"
	"crypto/rand"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
	"github.com/fencekit/fencekit/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// Names that most lines of these tests need.
var (
	patient   = etcdtest.Patient
	dial      = etcdtest.Dial
	awaitKeys = etcdtest.AwaitKeys
)

// fresh returns a prefix of the test's own.
func fresh(t testing.TB) keys.Space { return keys.Space{Prefix: t.Name() + "-" + rand.Text()} }

// newQueues returns queues whose waiters don't poll, and that are closed with the test.
func newQueues(t testing.TB, client *clientv3.Client, names keys.Space, timeout time.Duration) *Queues {
	t.Helper()
	c := cluster.New(client, names, timeout, slog.New(slog.DiscardHandler))
	sessions := session.NewManager(c, session.Config{TTL: max(30*time.Second, timeout), RequestTimeout: timeout})
	q := New(c, sessions, watch.New(c, time.Hour), "test")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		q.Close()
		_ = sessions.Close(ctx)
		c.Tasks.Stop()
		sessions.CloseStream()
	})
	return q
}

func acquire(t testing.TB, q *Queues, resource string) Lease {
	t.Helper()
	le, err := q.Acquire(patient(t), resource)
	require.NoError(t, err)
	return le
}

func release(t testing.TB, le fence.Lease) {
	t.Helper()
	require.NoError(t, le.Release(patient(t)))
}

// inTurn returns a position whose key isn't written yet.
func inTurn(t testing.TB, q *Queues, s *session.Session, resource string) *Position {
	t.Helper()
	l := q.enter(resource)
	free, _ := l.tryTake()
	require.True(t, free)
	p := l.newPosition(s, nil)
	require.NotNil(t, p)
	t.Cleanup(func() { p.end(fence.ErrReleased) })
	return p
}
