package session

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/testenv"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func newTestManager(t testing.TB, endpoint string, opts ...grpc.DialOption) *Manager {
	t.Helper()
	c := cluster.New(etcdtest.Dial(t, endpoint, opts...), cluster.Space{Prefix: t.Name()}, 20*time.Second, slog.New(slog.DiscardHandler))
	m := NewManager(c, 30*time.Second, func(*Session, fence.LossReason) {})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = m.Close(ctx)
		c.Tasks.Stop()
		m.CloseStream()
	})
	return m
}

// renewing is a manager with a session, behind a link, that has renewed once.
type renewing struct {
	*Manager
	id      clientv3.LeaseID
	link    *netfault.Link
	streams atomic.Int32 // that were opened
}

func startRenewing(t *testing.T) *renewing {
	t.Helper()
	link, err := netfault.New(strings.TrimPrefix(etcdserver.Shared(t).Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = link.Close() })
	r := &renewing{link: link}
	r.Manager = newTestManager(t, "http://"+link.Addr(), etcdtest.OnStream(pb.Lease_LeaseKeepAlive_FullMethodName, func(_ context.Context, stream grpc.ClientStream) (grpc.ClientStream, error) {
		r.streams.Add(1)
		return stream, nil
	}))
	s, err := r.Live(etcdtest.Patient(t))
	require.NoError(t, err)
	r.id = s.ID
	_, err = r.leases.KeepAlive(etcdtest.Patient(t), r.id)
	require.NoError(t, err)
	return r
}

func TestRenewals_AKeptStreamThatDiedIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	r := startRenewing(t)
	r.link.Reset()
	_, err := r.leases.KeepAlive(etcdtest.Patient(t), r.id)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.streams.Load())
}

// The answer to one renewal arrives while the next one waits for its own.
func TestRenewals_ALateAnswerIsNotTakenForAnother(t *testing.T) {
	t.Parallel()
	r := startRenewing(t)
	reconnect := r.link.Cut(netfault.ToClient)
	defer reconnect()
	ctx, cancel := context.WithCancel(etcdtest.Patient(t))
	failed := make(chan error, 1)
	go func() {
		_, err := r.leases.KeepAlive(ctx, r.id)
		failed <- err
	}()
	cancel()
	require.Error(t, <-failed)
	require.EqualValues(t, 1, r.streams.Load(), "no other is needed")
	reconnect()
	_, err := r.leases.KeepAlive(etcdtest.Patient(t), r.id)
	require.NoError(t, err)
	require.EqualValues(t, 2, r.streams.Load())
}
