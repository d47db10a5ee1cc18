package etcd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

type authEtcd struct {
	*etcdserver.Server
	root *clientv3.Client
}

// rights are those that the package comment says a role needs.
var rights = []struct {
	key    string
	prefix bool
	kind   clientv3.PermissionType
}{
	{"/locks/", true, clientv3.PermissionType(clientv3.PermReadWrite)},
	{"/void/", true, clientv3.PermissionType(clientv3.PermReadWrite)},
	{"/epoch", false, clientv3.PermissionType(clientv3.PermRead)},
}

// hasty makes tokens expire after a second without use. Without it they outlast a test.
const hasty = "--auth-token-ttl=1"

func startAuthEtcd(t testing.TB, prefix string, flags ...string) *authEtcd {
	t.Helper()
	a := &authEtcd{Server: startEtcd(t, &etcdserver.Config{ExtraFlags: append([]string{"--bcrypt-cost=4", "--log-level=debug"}, flags...)})}
	admin := dial(t, a.Endpoint())
	for _, user := range []string{"root", "app", "nobody"} {
		_, err := admin.UserAdd(patient(t), user, user)
		require.NoError(t, err)
		_, err = admin.RoleAdd(patient(t), user)
		require.NoError(t, err)
		_, err = admin.UserGrantRole(patient(t), user, user)
		require.NoError(t, err)
	}
	for _, r := range rights {
		key, end := prefix+r.key, ""
		if r.prefix {
			end = clientv3.GetPrefixRangeEnd(key)
		}
		_, err := admin.RoleGrantPermission(patient(t), "app", key, end, r.kind)
		require.NoError(t, err)
	}
	_, err := admin.AuthEnable(patient(t))
	require.NoError(t, err)
	a.root = a.as(t, "root")
	return a
}

func (a *authEtcd) as(t testing.TB, user string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	return dialAs(t, a.Endpoint(), user, opts...)
}

func dialAs(t testing.TB, endpoint, user string, opts ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	return etcdtest.Client(t, clientv3.Config{Endpoints: []string{endpoint}, DialOptions: opts, Username: user, Password: user})
}

// awaitNoToken waits until every token that etcd has issued is expired.
func (a *authEtcd) awaitNoToken(t testing.TB) {
	t.Helper()
	require.NoError(t, process.Poll(patient(t), func(context.Context) error {
		log, err := os.ReadFile(a.Dir().Path("etcd-node.log"))
		if err == nil && bytes.Count(log, []byte("deleted a simple token")) < bytes.Count(log, []byte("authenticated a user")) {
			err = errors.New("tokens don't expire")
		}
		return err
	}))
}

// The role has the documented rights and no others: everything works, including the clean-up after an unknown outcome.
func TestAuth_TheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	e := startAuthEtcd(t, cfg.Prefix)
	late := etcdtest.NewLateTxn(etcdtest.IsAcquire)
	a := newTestLocker(t, e.as(t, "app"), cfg)
	b := newTestLocker(t, e.as(t, "app", grpc.WithChainUnaryInterceptor(late.Intercept)), cfg)
	held := acquire(t, a, "r")
	kept := acquire(t, b, "kept")
	_, err := b.TryAcquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrLocked)
	waiting := queued(t, b, "r", 2)
	awaitWatching(t, b, "r")
	require.True(t, renews(t, a))
	release(t, held)
	granted(t, waiting)

	late.Arm()
	unknown := acquiring(patient(t), b, "unknown")
	deliver := late.Kept(t)
	require.ErrorIs(t, (<-unknown).err, fence.ErrUnavailable)
	awaitKeys(t, e.root, b.cluster.Keys.Prefix+"/void/", 1)
	require.False(t, deliver().Succeeded)
	require.True(t, b.cluster.CheckNow(patient(t)))

	require.NoError(t, b.Close(patient(t)))
	require.NoError(t, a.Close(patient(t)))
	require.Equal(t, fence.LossClosed, lossOf(t, kept))
	awaitKeys(t, e.root, cfg.Prefix, 0)
}

// Every token has expired: each kind of request fetches a new one. Each is made by a locker
// and client of its own, so that none renews another's token.
func TestAuth_SurvivesTokensThatExpire(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	e := startAuthEtcd(t, cfg.Prefix, hasty)
	locker := func() *Locker { return newTestLocker(t, e.as(t, "app"), cfg) }
	renewing, watching, releasing, trying, waiting, closing := locker(), locker(), locker(), locker(), locker(), locker()
	acquire(t, renewing, "renewing")
	require.True(t, renews(t, renewing))
	first := acquire(t, watching, "watching")
	first.AfterContended(func() {})
	held := acquire(t, releasing, "r")
	release(t, acquire(t, trying, "trying"))
	got := acquiring(patient(t), waiting, "r")
	awaitKeys(t, e.root, cfg.Prefix+"/locks/r/", 2)
	awaitWatching(t, waiting, "r")
	acquire(t, closing, "closing")

	e.awaitNoToken(t)
	require.True(t, renews(t, renewing))
	_, err := trying.TryAcquire(patient(t), "r")
	require.ErrorIs(t, err, fence.ErrLocked)
	release(t, held)
	require.NoError(t, (<-got).err)
	second := acquire(t, watching, "second") // its watch is requested over the stream of the first
	next := acquiring(patient(t), trying, "second")
	requireContended(t, second)
	for _, le := range []fence.Lease{first, second} {
		_, err := e.root.Delete(patient(t), keyOf(le))
		require.NoError(t, err)
		require.Equal(t, fence.LossDeleted, lossOf(t, le))
	}
	require.NoError(t, (<-next).err)
	require.NoError(t, closing.Close(patient(t)))
	requireGone(t, e.root, closing.sessions.Current().ID)
}

func requireNamesRights(t testing.TB, err error, l *Locker) {
	t.Helper()
	requireReason(t, err, fence.Denied)
	for _, r := range rights {
		require.ErrorContains(t, err, l.cluster.Keys.Prefix+r.key)
	}
}

// mutexAuth is an etcd with authentication, whose user "app" may use some names, with etcd's own keys.
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

func (m *mutexAuth) revoke(t testing.TB, name string) {
	t.Helper()
	key := name + "/"
	_, err := m.root.RoleRevokePermission(patient(t), "app", key, clientv3.GetPrefixRangeEnd(key))
	require.NoError(t, err)
}

// The right is revoked while one call waits and another holds, and then their streams break: the waiter gets an
// error, as does who observes without the right, and the holder assumes that others wait. Their other locks are
// watched as before.
func TestDenied_AWaiterGetsTheErrorAndAHolderGivesWay(t *testing.T) {
	t.Parallel()
	m := startMutexAuth(t, "lost", "alone", "kept")
	toA, toB := newLink(t, m.Endpoint()), newLink(t, m.Endpoint())
	a := newTestLocker(t, dialAs(t, toA.endpoint(), "app"), m.cfg)
	b := newTestLocker(t, dialAs(t, toB.endpoint(), "app"), m.cfg)
	held, alone, kept := acquire(t, a, "lost"), acquire(t, a, "alone"), acquire(t, a, "kept")
	waiting := acquiring(patient(t), b, "lost")
	awaitKeys(t, m.root, "lost/", 2)
	awaitWatching(t, b, "lost")
	seen := observe(t, election(t, a, "foreign"))
	requireReason(t, seen.next().err, fence.Denied)
	seen.ended()
	m.revoke(t, "lost")
	m.revoke(t, "alone")
	toB.Reset()
	requireReason(t, (<-waiting).err, fence.Denied)
	toA.Reset()
	requireContended(t, alone)
	requireContended(t, held)
	_, err := m.root.Delete(patient(t), keyOf(kept))
	require.NoError(t, err)
	lossOf(t, kept)
}
