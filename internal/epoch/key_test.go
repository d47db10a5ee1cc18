package epoch

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd"
	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// key is the epoch key of a prefix.
type key struct {
	t      testing.TB
	client *clientv3.Client
	prefix string
}

func newKey(t testing.TB, client *clientv3.Client) key {
	return key{t, client, "prefix-" + rand.Text()}
}

func (k key) inspect() (inspect.Epoch, error) {
	k.t.Helper()
	inspector, err := inspect.New(k.client, k.prefix, time.Minute)
	require.NoError(k.t, err)
	return inspector.Epoch(patient(k.t))
}

func (k key) read() inspect.Epoch {
	k.t.Helper()
	e, err := k.inspect()
	require.NoError(k.t, err)
	return e
}

// put requires that Put doesn't fail, and returns what it reports.
func (k key) put(seen inspect.Epoch, number int64, dryRun bool) bool {
	k.t.Helper()
	done, err := Put(patient(k.t), k.client, seen, number, dryRun)
	require.NoError(k.t, err)
	return done
}

// byHand puts what operators may.
func (k key) byHand(text string) {
	k.t.Helper()
	_, err := k.client.Put(patient(k.t), k.prefix+"/epoch", text)
	require.NoError(k.t, err)
}

func requireReason(t testing.TB, err error, reason fence.UnavailableReason) {
	t.Helper()
	away := new(fence.UnavailableError)
	require.ErrorAs(t, err, &away)
	require.Equal(t, reason, away.Reason, err)
}

func startEtcd(t testing.TB, cfg *etcdserver.Config) (*etcdserver.Server, *clientv3.Client) {
	t.Helper()
	server, err := etcdserver.Start(patient(t), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	client, err := server.Client(patient(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return server, client
}

// The key is put only if it is as it was seen: also one that holds the same number again, or
// none that can be read.
func TestPut_OnlyOverWhatWasSeen(t *testing.T) {
	t.Parallel()
	k := newKey(t, etcdserver.Client(t))
	none := k.read()
	require.False(t, k.put(none, 2, true))
	require.Zero(t, k.read().KeyRevision, "a dry run")
	require.True(t, k.put(none, 2, false))
	require.False(t, k.put(none, 3, false))
	two := k.read()
	require.EqualValues(t, 2, two.Number)
	require.Greater(t, two.KeyRevision, none.Revision)
	k.byHand("2")
	require.False(t, k.put(two, 3, false))
	k.byHand("two")
	unreadable, err := k.inspect()
	requireReason(t, err, fence.InvalidEpoch)
	require.True(t, k.put(unreadable, 7, false))
	require.EqualValues(t, 7, k.read().Number)
}

// A dry run finds that the right is missing.
func TestPut_NeedsTheRight(t *testing.T) {
	t.Parallel()
	server, admin := startEtcd(t, &etcdserver.Config{ExtraFlags: []string{"--bcrypt-cost=4"}})
	k := newKey(t, admin)
	kinds := map[string]clientv3.PermissionType{"reader": clientv3.PermissionType(clientv3.PermRead), "writer": clientv3.PermissionType(clientv3.PermReadWrite)}
	for _, user := range []string{"root", "reader", "writer"} {
		_, err := admin.UserAdd(patient(t), user, user)
		require.NoError(t, err)
		_, err = admin.RoleAdd(patient(t), user)
		require.NoError(t, err)
		_, err = admin.UserGrantRole(patient(t), user, user)
		require.NoError(t, err)
		if kind, ok := kinds[user]; ok {
			_, err = admin.RoleGrantPermission(patient(t), user, k.prefix+"/epoch", "", kind)
			require.NoError(t, err)
		}
	}
	_, err := admin.AuthEnable(patient(t))
	require.NoError(t, err)
	as := func(user string) key {
		config := etcd.ClientConfig(server.Endpoint())
		config.Username, config.Password = user, user
		client, err := clientv3.New(config)
		require.NoError(t, err)
		t.Cleanup(func() { _ = client.Close() })
		return key{t, client, k.prefix}
	}
	reader, writer := as("reader"), as("writer")
	for _, dryRun := range []bool{true, false} {
		_, err := Put(patient(t), reader.client, reader.read(), 2, dryRun)
		requireReason(t, err, fence.Denied)
		require.ErrorContains(t, err, "needs readwrite on the key "+k.prefix+"/epoch")
		require.Equal(t, !dryRun, writer.put(writer.read(), 2, dryRun))
	}
}
