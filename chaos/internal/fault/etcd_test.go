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

// ask reads a key from one member; without options the read is linearizable.
func ask(ctx context.Context, t testing.TB, m *etcdserver.Member, opts ...clientv3.OpOption) error {
	t.Helper()
	client, err := m.Client(context.Background())
	require.NoError(t, err)
	defer client.Close()
	_, err = client.Get(ctx, "key", opts...)
	return err
}

// While the fault lasts its member answers no client, and the others do; afterwards it
// answers again. An isolated member still answers serializable reads.
func TestEtcd_InjectsIntoOneMember(t *testing.T) {
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
		revert := inject(t, f, s)
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

// A cluster without a leader has none to stop, and a single member can't be isolated.
func TestEtcd_MissesWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	s := &site{etcd: c}
	requireMissed(patient(t), t, fault.EtcdIsolate{}, s)
	revert := inject(t, fault.EtcdKill{}, s)
	for _, f := range []fault.Fault{fault.EtcdPause{Member: fault.Leader}, fault.EtcdKill{Member: fault.Leader}} {
		requireMissed(brief(t), t, f, s)
	}
	revert()
	require.NoError(t, ask(patient(t), t, c.Cluster.Members()[0]))
}

// Another fault has ended the member before.
func TestEtcd_MissesAMemberThatIsDown(t *testing.T) {
	t.Parallel()
	c := startCluster(t, 1)
	require.NoError(t, c.Cluster.Members()[0].Kill())
	for _, f := range []fault.Fault{fault.EtcdPause{Member: 0}, fault.EtcdKill{Member: 0}} {
		_, err := f.Inject(patient(t), &site{etcd: c})
		require.ErrorIs(t, err, fault.ErrMissed)
	}
}

// newOwn is a site with its own etcd.
func newOwn(t testing.TB) *site {
	t.Helper()
	c := startCluster(t, 1)
	client, err := c.Client(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return &site{etcd: c, observer: client, locks: "locks/"}
}

// Compacted revisions can't be watched any more; the latest value stays.
func TestEtcdCompact_ForgetsAllButTheLatest(t *testing.T) {
	t.Parallel()
	s := newOwn(t)
	first, err := s.observer.Put(patient(t), "key", "1")
	require.NoError(t, err)
	_, err = s.observer.Put(patient(t), "key", "2")
	require.NoError(t, err)
	injectOnce(t, fault.EtcdCompact{}, s)
	seen := <-s.observer.Watch(patient(t), "key", clientv3.WithRev(first.Header.Revision))
	require.ErrorIs(t, seen.Err(), rpctypes.ErrCompacted)
	got, err := s.observer.Get(patient(t), "key")
	require.NoError(t, err)
	require.Equal(t, "2", string(got.Kvs[0].Value))
	requireMissed(patient(t), t, fault.EtcdCompact{}, s) // no older revision is left
}

// Until it is reverted etcd rejects requests that need space.
func TestEtcdNoSpace_TakesNoWrites(t *testing.T) {
	t.Parallel()
	s := newOwn(t)
	revert := inject(t, fault.EtcdNoSpace{}, s)
	_, err := s.observer.Put(patient(t), "key", "")
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = s.observer.Delete(patient(t), "key")
	require.NoError(t, err)
	revert()
	_, err = s.observer.Put(patient(t), "key", "")
	require.NoError(t, err)
}
