package fault_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// lockSite is a site with three lock keys, two of them of one lease, and with other keys
// that are no locks.
func lockSite(t testing.TB) *site {
	t.Helper()
	client := etcdserver.Client(t)
	s := &site{observer: client, locks: t.Name() + "/"}
	first, err := client.Grant(patient(t), 600)
	require.NoError(t, err)
	second, err := client.Grant(patient(t), 600)
	require.NoError(t, err)
	for key, lease := range map[string]clientv3.LeaseID{
		s.locks + "a": first.ID, s.locks + "b": second.ID, s.locks + "c": first.ID,
		s.locks + "aa": 0, "else/" + t.Name(): second.ID,
	} {
		_, err := client.Put(patient(t), key, "", clientv3.WithLease(lease))
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, id := range []clientv3.LeaseID{first.ID, second.ID} {
			_, _ = client.Revoke(context.Background(), id) // the fault may have
		}
	})
	return s
}

// keys are those that are there, in order, without their prefix.
func (s *site) keys(t testing.TB) (keys []string) {
	t.Helper()
	got, err := s.observer.Get(patient(t), s.locks, clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key[len(s.locks):]))
	}
	return keys
}

func TestRevokeLease_EndsTheLeaseOfTheKeyThatItNames(t *testing.T) {
	t.Parallel()
	s := lockSite(t)
	injectOnce(t, fault.RevokeLease{Index: 4}, s) // of a, b, c: b
	require.Equal(t, []string{"a", "aa", "c"}, s.keys(t))
	injectOnce(t, fault.RevokeLease{Index: 0}, s)
	require.Equal(t, []string{"aa"}, s.keys(t))
	requireMissed(patient(t), t, fault.RevokeLease{}, s)
}

func TestDeleteLock_DeletesTheKeyThatItNames(t *testing.T) {
	t.Parallel()
	s := lockSite(t)
	injectOnce(t, fault.DeleteLock{Index: 5}, s)
	require.Equal(t, []string{"a", "aa", "b"}, s.keys(t))
	injectOnce(t, fault.DeleteLock{Index: 2}, s)
	injectOnce(t, fault.DeleteLock{Index: 2}, s)
	require.Equal(t, []string{"aa"}, s.keys(t))
	requireMissed(patient(t), t, fault.DeleteLock{}, s)
}

// While another fault keeps etcd silent no lock key is found.
func TestLease_MissesWhileEtcdIsSilent(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	client, err := c.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	s := &site{etcd: c, observer: client, locks: "locks/"}
	revert := inject(t, fault.EtcdPause{}, s)
	requireMissed(brief(t), t, fault.RevokeLease{}, s)
	requireMissed(brief(t), t, fault.DeleteLock{}, s)
	revert()
}
