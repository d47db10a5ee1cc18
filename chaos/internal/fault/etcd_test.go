package fault_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// cluster is a etcdserver.Cluster as faults see it.
type cluster struct{ *etcdserver.Cluster }

func (c cluster) Members() (members []fault.Member) {
	for _, m := range c.Cluster.Members() {
		members = append(members, m)
	}
	return members
}

func (c cluster) Leader(ctx context.Context) (fault.Member, error) { return c.Cluster.Leader(ctx) }

func startCluster(t testing.TB, size int) cluster {
	t.Helper()
	c, err := etcdserver.StartCluster(patient(t), size, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
	return cluster{c}
}

// ask asks one member for something, of all members' knowledge or of its own.
func ask(ctx context.Context, t testing.TB, m *etcdserver.Member, opts ...clientv3.OpOption) error {
	t.Helper()
	client, err := m.Client(context.Background())
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Get(ctx, "key", opts...)
	return err
}

// A member that is struck answers nobody, the others do, and it does again when it is
// healed. One that is cut off still answers what it can alone.
func TestEtcd_StrikesOneMember(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 3)
	s := &site{etcd: c}
	members := c.Cluster.Members()
	for _, f := range []fault.Fault{
		fault.EtcdPause{Member: 1}, fault.EtcdPause{Member: fault.Leader}, fault.EtcdKill{Member: 5}, fault.EtcdKill{Member: fault.Leader},
		fault.EtcdIsolate{Member: 0}, fault.EtcdIsolate{Member: fault.Leader},
	} {
		leader, err := c.Cluster.Leader(patient(t))
		require.NoError(t, err)
		victim, isolated := leader, false
		switch f := f.(type) {
		case fault.EtcdPause:
			victim = pick(members, f.Member, leader)
		case fault.EtcdKill:
			victim = pick(members, f.Member, leader)
		case fault.EtcdIsolate:
			victim, isolated = pick(members, f.Member, leader), true
		}
		revert := strike(t, f, s)
		require.Error(t, ask(brief(t), t, victim), f)
		if isolated {
			require.NoError(t, ask(patient(t), t, victim, clientv3.WithSerializable()), f)
		} else {
			require.Error(t, ask(brief(t), t, victim, clientv3.WithSerializable()), f)
		}
		for _, m := range members {
			if m != victim {
				require.NoError(t, ask(patient(t), t, m), f)
			}
		}
		revert()
		require.NoError(t, ask(patient(t), t, victim), f)
	}
}

func pick(members []*etcdserver.Member, number int, leader *etcdserver.Member) *etcdserver.Member {
	if number == fault.Leader {
		return leader
	}
	return members[number%len(members)]
}

// Where nobody leads no leader can be struck, and one member alone can't be cut off.
func TestEtcd_MissesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	s := &site{etcd: c}
	requireMissed(patient(t), t, fault.EtcdIsolate{}, s)
	revert := strike(t, fault.EtcdKill{}, s)
	for _, f := range []fault.Fault{fault.EtcdPause{Member: fault.Leader}, fault.EtcdKill{Member: fault.Leader}} {
		requireMissed(brief(t), t, f, s)
	}
	revert()
	require.NoError(t, ask(patient(t), t, c.Cluster.Members()[0]))
}

// Another fault has struck the member before.
func TestEtcd_MissesAMemberThatIsDown(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	require.NoError(t, c.Cluster.Members()[0].Kill())
	for _, f := range []fault.Fault{fault.EtcdPause{Member: 0}, fault.EtcdKill{Member: 0}} {
		_, err := f.Inject(patient(t), &site{etcd: c})
		require.ErrorIs(t, err, fault.ErrMissed)
	}
}

// newOwn is a site with an etcd of its own.
func newOwn(t testing.TB) *site {
	t.Helper()
	c := startCluster(t, 1)
	client, err := c.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return &site{etcd: c, observer: client, locks: "locks/"}
}

// What was compacted can't be watched any more, and what is there stays.
func TestEtcdCompact_ForgetsAllButTheLatest(t *testing.T) {
	t.Parallel()
	s := newOwn(t)
	first, err := s.observer.Put(patient(t), "key", "1")
	require.NoError(t, err)
	_, err = s.observer.Put(patient(t), "key", "2")
	require.NoError(t, err)
	strikeOnce(t, fault.EtcdCompact{}, s)
	seen := <-s.observer.Watch(patient(t), "key", clientv3.WithRev(first.Header.Revision))
	require.ErrorIs(t, seen.Err(), rpctypes.ErrCompacted)
	got, err := s.observer.Get(patient(t), "key")
	require.NoError(t, err)
	require.Equal(t, "2", string(got.Kvs[0].Value))
	requireMissed(patient(t), t, fault.EtcdCompact{}, s) // there is nothing older any more
}

// Nothing that needs space is taken until it is healed.
func TestEtcdNoSpace_TakesNoWrites(t *testing.T) {
	t.Parallel()
	s := newOwn(t)
	revert := strike(t, fault.EtcdNoSpace{}, s)
	_, err := s.observer.Put(patient(t), "key", "")
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = s.observer.Delete(patient(t), "key")
	require.NoError(t, err)
	revert()
	_, err = s.observer.Put(patient(t), "key", "")
	require.NoError(t, err)
}
