package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// line is how a client reaches etcd. It can be cut, and end at another etcd.
type line struct {
	mu    sync.Mutex
	to    string // host:port; empty while it is cut
	conns []net.Conn
}

func (l *line) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to == "" {
		return nil, errors.New("the line is cut")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.to)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.to, l.conns = "", nil
}

func (l *line) lead(e *etcdserver.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = e.Endpoint()[len("http://"):]
}

// overLine returns a client on a line to an etcd.
func overLine(t testing.TB, e *etcdserver.Server) (*clientv3.Client, *line) {
	t.Helper()
	l := &line{}
	l.lead(e)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithContextDialer(l.dial)}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client, l
}

func ownEtcd(t testing.TB) (*etcdserver.Server, *clientv3.Client) {
	t.Helper()
	e, err := etcdserver.Start(patient(t), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	client, err := e.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return e, client
}

func watch(t testing.TB, client *clientv3.Client, prefix string) *Watcher {
	t.Helper()
	w, err := Watch(patient(t), client, prefix)
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		w.Close(ended)
	})
	return w
}

// gapless requires that a watch has seen puts at just these revisions.
func gapless(t testing.TB, w *Watcher, revisions ...int64) {
	t.Helper()
	locks := w.Close(patient(t))
	require.Empty(t, locks.Gap)
	var seen []int64
	for _, e := range locks.Events {
		require.Equal(t, e.Revision, e.Created)
		seen = append(seen, e.Revision)
	}
	require.Equal(t, revisions, seen)
}

// What it reads from the keys is what the lock service's own clients say.
func TestWatch_TellsResourceTokenLeaseAndHolderOfEachLock(t *testing.T) {
	t.Parallel()
	client, prefix := etcdserver.Client(t), t.Name()
	w := watch(t, client, prefix)
	locker, err := etcd.NewLocker(client, &etcd.Config{Prefix: prefix})
	require.NoError(t, err)
	var grants []fence.Grant
	for _, resource := range []string{"a", "a/b", "a%2Fb", "a/", "ä b+c?d#e", "世界"} {
		lease, err := locker.Acquire(patient(t), resource)
		require.NoError(t, err)
		left, err := LeftKeys(patient(t), client, prefix)
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.NoError(t, lease.Release(patient(t)))
		put(t, client, prefix+"/elsewhere/a/b") // no lock
		grants = append(grants, lease.Grant())
	}
	require.NoError(t, locker.Close(patient(t)))
	left, err := LeftKeys(patient(t), client, prefix)
	require.NoError(t, err)
	require.Empty(t, left)

	locks := w.Close(patient(t))
	require.Empty(t, locks.Gap)
	require.Len(t, locks.Events, 2*len(grants))
	for i, g := range grants {
		came, gone := locks.Events[2*i], locks.Events[2*i+1]
		require.NotZero(t, came.Lease)
		require.NotZero(t, came.At)
		require.Equal(t, LockEvent{At: came.At, Resource: g.Resource, Revision: int64(g.Token), Created: int64(g.Token), Lease: came.Lease, Holder: g.Holder}, came)
		require.Equal(t, LockEvent{At: gone.At, Resource: g.Resource, Revision: gone.Revision, Created: int64(g.Token), Gone: true}, gone)
		require.Greater(t, gone.Revision, came.Revision)
		require.GreaterOrEqual(t, gone.At, came.At)
	}
	require.Equal(t, locks, w.Close(patient(t)), "a second call")
	kept, err := client.Get(patient(t), prefix+"/observed/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, kept.Kvs, "it leaves nothing")
}

// A key that has another shape, as etcd's own Mutex makes it, is a lock all the same.
func TestWatch_TakesKeysOfOtherShapes(t *testing.T) {
	t.Parallel()
	client, prefix := etcdserver.Client(t), t.Name()
	w := watch(t, client, prefix)
	session, err := concurrency.NewSession(client)
	require.NoError(t, err)
	m := concurrency.NewMutex(session, prefix+"/locks/sku/1")
	require.NoError(t, m.Lock(patient(t)))
	require.NoError(t, m.Unlock(patient(t)))
	require.NoError(t, session.Close())
	put(t, client, prefix+"/locks/100%")
	locks := w.Close(patient(t))
	require.Empty(t, locks.Gap)
	require.Len(t, locks.Events, 3)
	require.Equal(t, "sku/1", locks.Events[0].Resource)
	require.EqualValues(t, session.Lease(), locks.Events[0].Lease)
	require.Equal(t, locks.Events[0].Created, locks.Events[1].Created)
	require.True(t, locks.Events[1].Gone)
	require.Equal(t, "100%", locks.Events[2].Resource)
}

// Keys that are there at the start have come; one that is written again shows its
// new lease; and one that came before the start is known when it goes.
func TestWatch_KnowsTheKeysThatAreThereAtTheStart(t *testing.T) {
	t.Parallel()
	client, prefix := etcdserver.Client(t), t.Name()
	second := prefix + "/locks/b/1"
	put(t, client, second)
	first := put(t, client, prefix+"/locks/a/1")
	moved := put(t, client, second)
	w := watch(t, client, prefix)
	lease, err := client.Grant(patient(t), 60)
	require.NoError(t, err)
	again := put(t, client, prefix+"/locks/a/1", clientv3.WithLease(lease.ID))
	_, err = client.Revoke(patient(t), lease.ID)
	require.NoError(t, err)
	locks := w.Close(patient(t))
	require.Empty(t, locks.Gap)
	for i := range locks.Events {
		locks.Events[i].At = 0
	}
	require.Equal(t, []LockEvent{
		{Resource: "a", Revision: first, Created: first},
		{Resource: "b", Revision: moved, Created: locks.Events[1].Created},
		{Resource: "a", Revision: again, Created: first, Lease: int64(lease.ID)},
		{Resource: "a", Revision: locks.Events[3].Revision, Created: first, Gone: true},
	}, locks.Events)
	require.Less(t, locks.Events[1].Created, first)
}

// All that was written when Close is called is seen, however much is on its way.
func TestClose_CatchesUp(t *testing.T) {
	t.Parallel()
	client, prefix := etcdserver.Client(t), t.Name()
	w := watch(t, client, prefix)
	var revisions []int64
	for i := range 300 {
		revisions = append(revisions, put(t, client, fmt.Sprintf("%s/locks/r/%d", prefix, i)))
	}
	gapless(t, w, revisions...)
}

func TestWatch_ResumesWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	e, admin := ownEtcd(t)
	client, l := overLine(t, e)
	w := watch(t, client, "p")
	before := put(t, admin, "p/locks/a/1")
	l.cut()
	during := put(t, admin, "p/locks/b/1")
	l.lead(e)
	after := put(t, admin, "p/locks/c/1")
	gapless(t, w, before, during, after)
}

func TestWatch_OutlivesACrashAndAStop(t *testing.T) {
	t.Parallel()
	e, client := ownEtcd(t)
	w := watch(t, client, "p")
	first := put(t, client, "p/locks/a/1")
	require.NoError(t, e.Kill())
	require.NoError(t, e.Restart(patient(t)))
	second := put(t, client, "p/locks/b/1")
	require.NoError(t, e.Pause())
	require.NoError(t, e.Resume())
	third := put(t, client, "p/locks/c/1")
	gapless(t, w, first, second, third)
}

func TestWatch_OutlivesTheLeader(t *testing.T) {
	t.Parallel()
	cluster, err := etcdserver.StartCluster(patient(t), 3, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop(context.Background())) })
	client, err := cluster.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	watches := []*Watcher{watch(t, client, "p"), watch(t, client, "p"), watch(t, client, "p")} // on all members, in turn
	first := put(t, client, "p/locks/a/1")
	leader, err := cluster.Leader(patient(t))
	require.NoError(t, err)
	require.NoError(t, leader.Kill())
	next, err := cluster.LeaderAfter(patient(t), leader)
	require.NoError(t, err)
	admin, err := next.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close()) })
	second := put(t, admin, "p/locks/b/1")
	require.NoError(t, leader.Restart(patient(t)))
	for _, w := range watches {
		gapless(t, w, first, second)
	}
}

// What could have hidden something is a gap, and says which.
func TestWatch_TellsAGap(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		during func(t *testing.T, e *etcdserver.Server, admin *clientv3.Client, snapshot string) (back *etcdserver.Server) // while the watch is cut off
		gap    string
	}{
		"compacted": {
			func(t *testing.T, e *etcdserver.Server, admin *clientv3.Client, _ string) *etcdserver.Server {
				put(t, admin, "p/locks/missed/1")
				_, err := admin.Compact(patient(t), put(t, admin, "else"))
				require.NoError(t, err)
				return e
			}, "were compacted before they were read",
		},
		"went back": {
			func(t *testing.T, e *etcdserver.Server, _ *clientv3.Client, snapshot string) *etcdserver.Server {
				require.NoError(t, e.Restore(patient(t), snapshot, 0))
				return e
			}, "etcd went back",
		},
		"went back and on": {
			func(t *testing.T, e *etcdserver.Server, admin *clientv3.Client, snapshot string) *etcdserver.Server {
				require.NoError(t, e.Restore(patient(t), snapshot, 0))
				for i := range 5 {
					put(t, admin, fmt.Sprintf("p/locks/other/%d", i))
				}
				return e
			}, "is not what it was",
		},
		"another": {
			func(t *testing.T, _ *etcdserver.Server, _ *clientv3.Client, _ string) *etcdserver.Server {
				other, _ := ownEtcd(t)
				return other
			}, "another etcd cluster",
		},
		"away": {
			func(t *testing.T, e *etcdserver.Server, _ *clientv3.Client, _ string) *etcdserver.Server {
				require.NoError(t, e.Kill())
				return e
			}, "did not reach its end",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, admin := ownEtcd(t)
			client, l := overLine(t, e)
			snapshot := filepath.Join(t.TempDir(), "snapshot")
			require.NoError(t, e.Snapshot(patient(t), snapshot))
			put(t, admin, "p/locks/a/1")
			put(t, admin, "p/locks/b/1")
			w := watch(t, client, "p")
			l.cut()
			l.lead(test.during(t, e, admin, snapshot))
			ctx := patient(t)
			if name == "away" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			require.Contains(t, w.Close(ctx).Gap, test.gap)
		})
	}
}

func TestWatch_OfAClientThatIsClosedHasAGap(t *testing.T) {
	t.Parallel()
	client, err := etcdserver.Shared(t).Client(context.Background())
	require.NoError(t, err)
	w := watch(t, client, t.Name())
	require.NoError(t, client.Close())
	require.NotEmpty(t, w.Close(patient(t)).Gap)
}

func TestWatch_FailsWhereItCannotBegin(t *testing.T) {
	t.Parallel()
	e, _ := ownEtcd(t)
	client, l := overLine(t, e)
	l.cut()
	l.lead(e)
	require.NoError(t, e.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := Watch(ctx, client, "p")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, e.Resume())
}

// deaf is a stream that brings nothing.
type deaf struct{ grpc.ClientStream }

func (d deaf) RecvMsg(any) error { <-d.Context().Done(); return d.Context().Err() }

// A watch that has shown nothing isn't one yet.
func TestWatch_WaitsUntilItHasShownSomething(t *testing.T) {
	t.Parallel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{etcdserver.Shared(t).Endpoint()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, conn, method, opts...)
			return deaf{stream}, err
		})},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = Watch(ctx, client, t.Name())
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// What is shown again on resuming is the latest revision whole, and nothing older: that
// may have been compacted by then.
func TestTake_KeepsTheLatestRevision(t *testing.T) {
	event := func(revision int64, key string) *mvccpb.Event {
		return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision, CreateRevision: revision}}
	}
	w := &Watcher{prefix: "p", own: "p/observed/1", created: map[string]int64{}}
	require.False(t, w.take(&pb.WatchResponse{Events: []*mvccpb.Event{event(5, "p/observed/1"), event(6, "p/locks/a/1"), event(7, "p/locks/b/1"), event(7, "p/locks/c/1")}}))
	require.EqualValues(t, 7, w.revision())
	w.again = 0
	require.False(t, w.take(&pb.WatchResponse{Events: []*mvccpb.Event{event(7, "p/locks/b/1"), event(7, "p/locks/c/1"), event(8, "p/locks/d/1")}}))
	require.EqualValues(t, 8, w.revision())
	require.Len(t, w.locks.Events, 4)
	w.again = 0
	require.True(t, w.take(&pb.WatchResponse{Events: []*mvccpb.Event{event(8, "p/locks/e/1")}}))
	require.Contains(t, w.locks.Gap, "is not what it was")
}
