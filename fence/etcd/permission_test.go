package etcd

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
)

// mutexAuth is an etcd with authentication, whose user "app" may use some names, with
// etcd's own keys.
type mutexAuth struct {
	*authEtcd
	cfg *Config
}

func startMutexAuth(t testing.TB, names ...string) *mutexAuth {
	t.Helper()
	cfg := fresh(t)
	cfg.MutexKeys = true
	m := &mutexAuth{startAuthEtcd(t, cfg.Prefix), cfg}
	for _, name := range names {
		key := name + "/"
		_, err := m.root.RoleGrantPermission(patient(t), "app", key, clientv3.GetPrefixRangeEnd(key), clientv3.PermissionType(clientv3.PermReadWrite))
		require.NoError(t, err)
	}
	return m
}

// revoke revokes the right to a name.
func (m *mutexAuth) revoke(t testing.TB, name string) {
	t.Helper()
	key := name + "/"
	_, err := m.root.RoleRevokePermission(patient(t), "app", key, clientv3.GetPrefixRangeEnd(key))
	require.NoError(t, err)
}

// An observer without the right to read gets an error, and doesn't disturb other users of
// its locker: their watches stay where they are.
func TestDenied_AnObserverGetsTheErrorAndCostsOthersNothing(t *testing.T) {
	t.Parallel()
	m, calls := startMutexAuth(t, "mine"), newCalls()
	l := newTestLocker(t, m.as(t, "app", "app", calls.options()...), m.cfg)
	held := acquire(t, l, "mine")
	for range 3 {
		seen := observe(t, election(t, l, "foreign"))
		err := seen.next().err
		requireReason(t, err, fence.Denied)
		require.ErrorContains(t, err, "observe foreign")
		seen.ended()
	}
	require.Equal(t, 1, calls.opened(pb.Watch_Watch_FullMethodName))
	contended := make(chan struct{})
	held.AfterContended(func() { close(contended) })
	waiting := acquiring(patient(t), newTestLocker(t, m.as(t, "app", "app"), m.cfg), "mine")
	etcdtest.Receive(t, contended)
	release(t, held)
	require.NoError(t, (<-waiting).err)
}

// The right is revoked while one call waits and another holds, and then their streams
// break: the waiter gets an error, and the holder assumes that others wait. Their other
// locks are watched as before.
func TestDenied_AWaiterGetsTheErrorAndAHolderGivesWay(t *testing.T) {
	t.Parallel()
	m := startMutexAuth(t, "lost", "alone", "kept")
	toA, toB := newProxy(t, m.Endpoint()), newProxy(t, m.Endpoint())
	a := newTestLocker(t, dialAs(t, toA.endpoint(), "app", "app"), m.cfg)
	b := newTestLocker(t, dialAs(t, toB.endpoint(), "app", "app"), m.cfg)
	held, alone, kept := acquire(t, a, "lost"), acquire(t, a, "alone"), acquire(t, a, "kept")
	waiting := acquiring(patient(t), b, "lost")
	awaitKeys(t, m.root, "lost/", 2)
	awaitWatching(t, b, "lost")
	m.revoke(t, "lost")
	m.revoke(t, "alone")
	toB.cut()
	requireReason(t, (<-waiting).err, fence.Denied)
	toA.cut()
	contended := make(chan struct{})
	alone.AfterContended(func() { close(contended) }) // it has never seen a waiter
	etcdtest.Receive(t, contended)
	again := make(chan struct{})
	held.AfterContended(func() { close(again) })
	etcdtest.Receive(t, again)
	_, err := m.root.Delete(patient(t), keyOf(kept))
	require.NoError(t, err)
	lossOf(t, kept)
}
