package queue

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// The cleaner is asked twice to remove what an Acquire of unknown outcome may have left. By the time of the
// second removal, another call waits under that name behind another process.
func TestCleaner_AskedTwiceSparesTheNextKeyOfTheName(t *testing.T) {
	t.Parallel()
	lost, came, allowed := etcdtest.NewLateTxn(etcdtest.IsAcquire), make(chan struct{}, 10), make(chan struct{}, 1)
	voids := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if txn, ok := req.(*pb.TxnRequest); ok && etcdtest.Puts(txn, "/void/") {
			came <- struct{}{}
			select {
			case <-allowed:
			case <-ctx.Done():
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	names := fresh(t)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(lost.Intercept, voids))
	q, other := newQueues(t, client, names, etcdtest.Patience), newQueues(t, etcdserver.Client(t), names, etcdtest.Patience)
	kept, theirs := acquire(t, q, "kept"), acquire(t, other, "r")
	doubt := func(resource string) *Position {
		p := inTurn(t, q, kept.position.session, resource)
		lost.Arm()
		q.sender.put(patient(t), p)
		lost.Kept(t)
		q.abandon(p)
		return p
	}
	p := doubt("r")
	etcdtest.Receive(t, came)
	q.cleaner.add(p)
	allowed <- struct{}{}
	etcdtest.Receive(t, p.untilSettled())
	waiting := acquiring(patient(t), t, q, "r")
	require.Equal(t, p.key(), string(awaitKeys(t, client, names.Queue("r"), 2)[1].Key), "or this shows nothing")
	close(allowed)
	etcdtest.Receive(t, doubt("behind it").untilSettled())
	release(t, theirs)
	require.NotZero(t, etcdtest.Receive(t, waiting), "its key was not deleted")
}

// A key that could not be deleted stays ahead of the later ones of its queue, and holds no other queue up.
func TestCleaner_KeepsTheOrderOfEachQueue(t *testing.T) {
	t.Parallel()
	c := &cleaner{queues: &Queues{sender: &sender{room: 3}}}
	r, other := &line{}, &line{}
	first, second, third, later := &Position{line: r, left: leftKey}, &Position{line: r, left: leftKey}, &Position{line: r, left: leftKey}, &Position{line: r, left: leftKey}
	x, y := &Position{line: other, left: leftKey}, &Position{line: other, left: leftKey}
	c.waiting = []*Position{first, second, third, later, x, y}
	takes := func(want ...*Position) {
		t.Helper()
		got := c.take()
		require.Len(t, got, len(want))
		for i := range want {
			require.Same(t, want[i], got[i])
		}
	}
	fail := func(ps ...*Position) {
		for _, p := range ps {
			p.tries++
		}
		c.putBack(ps)
	}
	takes(first, second, third)
	fail(first, second, third)
	takes(x, y)
	takes(first)
	fail(first)
	c.waiting = append([]*Position{x}, c.waiting...)
	takes(x)
	takes(first)
	takes(second)
	takes(third)
	takes(later)
	takes()
}
