package queue

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// etcd goes through a trace of each name that a queue ever had, until it compacts: a
// resource that is acquired often must not become slow.
func TestReuse_AcquisitionsThatFollowOneAnotherHaveOneKey_HD18(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), fresh(t)
	q := newQueues(t, client, names, etcdtest.Patience)
	began, err := client.Get(patient(t), names.Queue("r"))
	require.NoError(t, err)
	last := fence.Token(0)
	for range 20 {
		le := acquire(t, q, "r")
		require.Greater(t, le.Grant().Token, last, "each is a new grant (F1)")
		last = le.Grant().Token
		release(t, le)
	}
	first := acquire(t, q, "r")
	second := acquiring(patient(t), t, q, "r")
	awaitKeys(t, client, names.Queue("r"), 2)
	release(t, first)
	etcdtest.Receive(t, first.position.untilSettled())
	third := acquiring(patient(t), t, q, "r")
	awaitKeys(t, client, names.Queue("r"), 2)
	held := etcdtest.Receive(t, second)
	require.NotEqual(t, first.Key(), held.Key(), "of two at a time each has its own (F2)")
	release(t, held)
	release(t, etcdtest.Receive(t, third))

	seen, put := map[string]bool{}, 0
	for changes := client.Watch(patient(t), names.Queue("r"), clientv3.WithPrefix(), clientv3.WithRev(began.Header.Revision), clientv3.WithFilterDelete()); put < 23; {
		for _, ev := range (<-changes).Events {
			seen[string(ev.Kv.Key)] = true
			put++
		}
	}
	require.Len(t, seen, 2)
}

// The next position has a key of the same name: late requests of the one before must not
// touch it.
func TestReuse_LateRequestsSpareTheNextKey_F2_HD12(t *testing.T) {
	t.Parallel()
	for what, match := range map[string]func(*pb.TxnRequest) bool{
		"release": etcdtest.Deletes,
		"void":    func(txn *pb.TxnRequest) bool { return etcdtest.Puts(txn, "/void/") },
		"acquire": etcdtest.IsAcquire,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			late, lost := etcdtest.NewLateTxn(match), etcdtest.NewLateTxn(etcdtest.IsAcquire)
			client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept, lost.Intercept))
			names := fresh(t)
			q := newQueues(t, client, names, etcdtest.Patience)
			kept := acquire(t, q, "kept")
			p := inTurn(t, q, kept.position.session, "r")
			if what == "void" { // of an acquisition that never arrives
				lost.Arm()
			}
			if what != "release" {
				late.Arm()
			}
			q.sender.put(patient(t), p)
			if err := q.await(patient(t), p); what == "release" {
				require.NoError(t, err)
				late.Arm()
				release(t, Lease{p})
			} else {
				require.Error(t, err)
				q.abandon(p)
			}
			deliver := late.Kept(t)
			etcdtest.Receive(t, p.untilSettled())
			second := acquire(t, q, "r")
			require.Equal(t, p.key(), second.Key(), "or this shows nothing")
			require.NotNil(t, deliver())
			kvs := awaitKeys(t, client, names.Queue("r"), 1)
			require.EqualValues(t, second.Grant().Token, kvs[0].ModRevision)
			require.NoError(t, context.Cause(second.Context()))
			require.NoError(t, context.Cause(kept.Context()))
		})
	}
}
