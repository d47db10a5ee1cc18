package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

// txns sees the Txns of a client.
type txns struct {
	mu      sync.Mutex
	seen    []*pb.TxnRequest
	cancels int           // how many are answered "cancelled" after they took effect
	hold    chan struct{} // Txns that put wait for it before they are sent; nil lets them go
	deny    string        // a Txn that puts such a key is rejected
}

func newTxns() *txns { return &txns{} }

// reset returns how many Txns there were since the last call.
func (x *txns) reset() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.seen)
	x.seen = nil
	return n
}

func (x *txns) cancelled(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.cancels = n
}

func (x *txns) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	txn, ok := req.(*pb.TxnRequest)
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	x.mu.Lock()
	x.seen = append(x.seen, txn)
	hold, denied := x.hold, x.deny != "" && etcdtest.Puts(txn, x.deny)
	cancelled := x.cancels > 0
	if cancelled {
		x.cancels--
	}
	x.mu.Unlock()
	if hold != nil && etcdtest.IsAcquire(txn) {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if denied {
		return status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	if cancelled && err == nil {
		return status.Error(codes.Canceled, "not by the caller")
	}
	return err
}

// loaded is a Locker's queues with Txns under way that hold up others.
type loaded struct {
	*Queues
	*txns
	held  []Lease
	first []<-chan Lease // of the Txns under way
}

// newLoaded holds the resources of held.
func newLoaded(t *testing.T, held ...string) *loaded {
	x := newTxns()
	q := newQueues(t, dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(x.intercept)), fresh(t), 2*etcdtest.Patience) // no Txn ends while a test waits for another
	q.sender.stuckAfter = time.Hour
	release(t, acquire(t, q, "warm"))
	l := &loaded{Queues: q, txns: x}
	for _, resource := range held {
		l.held = append(l.held, acquire(t, q, resource))
	}
	x.mu.Lock()
	x.hold = make(chan struct{})
	x.mu.Unlock()
	x.reset()
	for i := range maxFlights {
		l.first = append(l.first, acquiring(patient(t), t, q, fmt.Sprint("first/", i)))
		l.awaitSent(t, i+1)
	}
	return l
}

// awaitSent waits until n Txns were seen.
func (l *loaded) awaitSent(t *testing.T, n int) {
	require.Eventually(t, func() bool {
		l.txns.mu.Lock()
		defer l.txns.mu.Unlock()
		return len(l.seen) == n
	}, etcdtest.Patience, time.Millisecond)
}

// awaitWaiting waits until so many puts and deletions wait for a Txn.
func (l *loaded) awaitWaiting(t *testing.T, puts, dels int) {
	require.Eventually(t, func() bool {
		l.sender.mu.Lock()
		defer l.sender.mu.Unlock()
		return len(l.sender.puts) == puts && len(l.sender.dels) == dels
	}, etcdtest.Patience, time.Millisecond)
}

// letGoAndHoldTheNext ends the hold for the Txns that have come.
func (l *loaded) letGoAndHoldTheNext() {
	l.txns.mu.Lock()
	defer l.txns.mu.Unlock()
	close(l.hold)
	l.hold = make(chan struct{})
}

// letGo ends the hold.
func (l *loaded) letGo() {
	l.txns.mu.Lock()
	defer l.txns.mu.Unlock()
	close(l.hold)
	l.hold = nil
}

// releasing releases in another goroutine.
func releasing(ctx context.Context, le Lease) <-chan error {
	done := make(chan error, 1)
	go func() { done <- le.Release(ctx) }()
	return done
}

// acquiring acquires in another goroutine; the zero Lease stands for an error.
func acquiring(ctx context.Context, t *testing.T, q *Queues, resource string) <-chan Lease {
	done := make(chan Lease, 1)
	go func() {
		le, err := q.Acquire(ctx, resource)
		if err != nil {
			le = Lease{}
		}
		done <- le
	}()
	return done
}

func TestSender_WhatComesMeanwhileGoesTogether(t *testing.T) {
	t.Parallel()
	l := newLoaded(t)
	var waiting []<-chan Lease
	const maxPuts = maxKeys / 4
	for i := range maxPuts {
		waiting = append(waiting, acquiring(patient(t), t, l.Queues, fmt.Sprint("sku/", i)))
	}
	l.awaitWaiting(t, maxPuts, 0)
	l.reset()
	l.letGo()
	tokens := map[fence.Token]bool{}
	for _, w := range waiting {
		le := etcdtest.Receive(t, w)
		require.NotZero(t, le)
		tokens[le.Grant().Token] = true
	}
	require.Len(t, tokens, 1, "one Txn for all that waited")
	require.Equal(t, 1, l.reset())
	for _, w := range l.first {
		require.NotZero(t, etcdtest.Receive(t, w))
	}
	awaitKeys(t, l.cluster.Client, l.cluster.Keys.Prefix+"/locks/sku", maxPuts)
}

// Equal tokens of one resource would not be fenced from each other.
func TestSender_TwoOfOneResourceShareNoTxn(t *testing.T) {
	t.Parallel()
	l := newLoaded(t)
	for i := range 5 {
		_ = acquiring(patient(t), t, l.Queues, "r")
		l.awaitSent(t, maxFlights+i) // the first of them waits, the others go out alone
	}
	l.letGo()
	kvs := awaitKeys(t, l.cluster.Client, l.cluster.Keys.Queue("r"), 5)
	for i := range kvs[1:] {
		require.Greater(t, kvs[i+1].CreateRevision, kvs[i].CreateRevision)
	}
}

// Each of four calls waits for its own key alone, though one Txn writes or deletes all of them.
func TestSender_CallsThatGiveUpHarmNoOtherOfTheirTxn(t *testing.T) {
	t.Parallel()
	l := newLoaded(t, "gone", "stays")
	ctx, giveUp := context.WithCancel(patient(t))
	early, cancel := context.WithCancel(patient(t))
	hasty, unsent := acquiring(ctx, t, l.Queues, "hasty"), acquiring(early, t, l.Queues, "unsent")
	patientOne := acquiring(patient(t), t, l.Queues, "patient")
	l.awaitWaiting(t, 3, 0)
	cancel()
	require.Zero(t, etcdtest.Receive(t, unsent), "before its Txn was sent")
	gone, stays := releasing(ctx, l.held[0]), releasing(patient(t), l.held[1])
	l.awaitWaiting(t, 2, 2)
	l.letGoAndHoldTheNext()
	l.awaitSent(t, maxFlights+1)
	giveUp()
	require.Zero(t, etcdtest.Receive(t, hasty), "while its Txn is under way")
	require.ErrorIs(t, etcdtest.Receive(t, gone), context.Canceled)
	l.letGo()
	require.NotZero(t, etcdtest.Receive(t, patientOne))
	require.NoError(t, etcdtest.Receive(t, stays))
	for _, resource := range []string{"hasty", "unsent", "gone", "stays"} {
		awaitKeys(t, l.cluster.Client, l.cluster.Keys.Queue(resource), 0)
	}
	awaitKeys(t, l.cluster.Client, l.cluster.Keys.Prefix, 1+maxFlights) // no void key: nothing was in doubt
}

// etcd rejects a Txn as a whole.
func TestSender_AnErrorOfOneIsNotThatOfOthers(t *testing.T) {
	t.Parallel()
	l := newLoaded(t)
	denied, allowed := acquiring(patient(t), t, l.Queues, "denied"), acquiring(patient(t), t, l.Queues, "allowed")
	l.awaitWaiting(t, 2, 0)
	l.txns.mu.Lock()
	l.deny = "/denied/"
	l.txns.mu.Unlock()
	l.letGo()
	require.Zero(t, etcdtest.Receive(t, denied))
	require.NotZero(t, etcdtest.Receive(t, allowed))
	require.Nil(t, l.Current("denied"), "its place is free")
}

// The answers to all of a Txn are lost: each is in doubt, and one void settles them.
func TestSender_ADoubtIsThatOfEach(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(func(txn *pb.TxnRequest) bool { return etcdtest.Puts(txn, "/locks/doubt") })
	x := newTxns()
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept, x.intercept))
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	kept := acquire(t, q, "kept")
	s := q.sessions.Current()
	a, b := inTurn(t, q, s, "doubt-a"), inTurn(t, q, s, "doubt-b")
	late.Arm()
	q.sender.mu.Lock()
	a.line.sending, b.line.sending = 1, 1
	q.sender.launch(&flight{session: s, puts: []*Position{a, b}})
	q.sender.mu.Unlock()
	deliver := late.Kept(t)
	for _, p := range []*Position{a, b} {
		require.Error(t, q.await(patient(t), p))
		q.abandon(p)
		etcdtest.Receive(t, p.untilSettled())
	}
	require.False(t, deliver().Succeeded)
	awaitKeys(t, client, q.cluster.Keys.Prefix+"/locks/doubt", 0)
	require.NoError(t, kept.Context().Err())
}

// The key of a later holder must not go before that of an earlier one, whose holder it relied
// on to be over.
func TestSender_DeletesAKeyNoLaterThanTheNext(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.Deletes)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(late.Intercept))
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	first := acquire(t, q, "r")
	second := acquiring(patient(t), t, q, "r")
	awaitKeys(t, client, q.cluster.Keys.Queue("r"), 2)
	q.cleaner.running = true // nothing repeats the deletion that is late
	late.Arm()
	release(t, first)
	deliver := late.Kept(t)
	release(t, etcdtest.Receive(t, second))
	awaitKeys(t, client, q.cluster.Keys.Queue("r"), 0)
	require.NotNil(t, deliver())
}

// etcd bounds the operations of a Txn, and counts those of Txns within it.
func TestSender_EtcdTakesTheLargestTxn(t *testing.T) {
	t.Parallel()
	client, names := etcdserver.Client(t), fresh(t)
	q := newQueues(t, client, names, etcdtest.Patience)
	const maxPuts = maxKeys / 4
	var free []string
	for i := range maxKeys - maxPuts {
		free = append(free, fmt.Sprint("held/", i))
	}
	held, err := q.TryAcquireAll(patient(t), free)
	require.NoError(t, err)
	f := &flight{sender: q.sender, session: q.sessions.Current()}
	for _, le := range held {
		f.dels = append(f.dels, le.position)
	}
	for i := range maxPuts {
		f.puts = append(f.puts, inTurn(t, q, f.session, fmt.Sprint("r/", i)))
	}
	txn, err := f.txn(patient(t), q.cluster.Sending())
	require.NoError(t, err)
	resp, err := txn.Commit()
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	awaitKeys(t, client, names.Prefix+"/locks/held", 0)
	awaitKeys(t, client, names.Prefix+"/locks/r", maxPuts)
	require.NoError(t, q.erase(patient(t), deletes(append(f.dels, f.puts...))...), "as the cleaner's")
}

// So also if there are more than go in one Txn.
func TestSender_DeletesManyInTheirOrder(t *testing.T) {
	t.Parallel()
	client := etcdserver.Client(t)
	q := newQueues(t, client, fresh(t), etcdtest.Patience)
	queue := q.cluster.Keys.Queue("r")
	var waiting []<-chan Lease
	for i := range 5 {
		waiting = append(waiting, acquiring(patient(t), t, q, "r"))
		awaitKeys(t, client, queue, i+1)
	}
	kvs := awaitKeys(t, client, queue, 5)
	changes := client.Watch(patient(t), queue, clientv3.WithPrefix(), clientv3.WithRev(kvs[4].ModRevision+1))
	q.sender.mu.Lock()
	q.sender.room, q.sender.busy = minKeys, maxFlights // nothing is deleted yet
	q.sender.mu.Unlock()
	released := make(chan error, 1)
	for i, w := range waiting {
		le := etcdtest.Receive(t, w)
		if i < 4 {
			release(t, le) // which doesn't wait, since the next call does
			continue
		}
		go func() { released <- le.Release(patient(t)) }()
	}
	require.Eventually(t, func() bool {
		q.sender.mu.Lock()
		defer q.sender.mu.Unlock()
		return len(q.sender.dels) == 5
	}, etcdtest.Patience, time.Millisecond)
	q.sender.mu.Lock()
	q.sender.busy, q.sender.dels = 0, q.sender.dels[4:] // as if Txns that delete the others were late
	q.sender.next()
	q.sender.mu.Unlock()
	require.NoError(t, etcdtest.Receive(t, released))
	for i := 0; i < 5; {
		for _, ev := range etcdtest.Receive(t, changes).Events {
			require.Equal(t, clientv3.EventTypeDelete, ev.Type)
			require.Equal(t, string(kvs[i].Key), string(ev.Kv.Key))
			i++
		}
	}
}

// lowLimits are flags of etcd servers that take few keys in a Txn.
var lowLimits = []string{"--max-txn-ops=32", "--max-txn-ops=3", "--max-request-bytes=1500"}

// startLimited starts an etcd with a limit.
func startLimited(t *testing.T, flag string) *etcdserver.Server {
	t.Helper()
	e, err := etcdserver.Start(patient(t), &etcdserver.Config{ExtraFlags: []string{flag}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e
}

// What is beyond a limit of etcd's goes in more Txns, each of which etcd takes.
func TestSender_KeepsToTheLimitsOfEtcd(t *testing.T) {
	t.Parallel()
	for _, flag := range lowLimits {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			x := newTxns()
			client, space := dial(t, startLimited(t, flag).Endpoint(), grpc.WithChainUnaryInterceptor(x.intercept)), fresh(t)
			q := newQueues(t, client, space, 2*etcdtest.Patience)
			q.sender.stuckAfter = time.Hour
			var held []Lease
			for len(held) < 40 {
				some, err := q.TryAcquireAll(patient(t), names(40)[len(held):])
				require.NoError(t, err)
				require.NotEmpty(t, some)
				held = append(held, some...)
			}
			q.sender.mu.Lock()
			q.sender.room, q.sender.busy = maxKeys, maxFlights // as if nothing were known yet, and others were under way
			q.sender.mu.Unlock()
			l := &loaded{Queues: q, txns: x}
			var waiting []<-chan Lease
			for i := range 40 {
				waiting = append(waiting, acquiring(patient(t), t, q, fmt.Sprint("new/", i)))
			}
			l.awaitWaiting(t, 40, 0)
			var released sync.WaitGroup
			for _, le := range held {
				released.Go(func() { assert.NoError(t, le.Release(patient(t))) })
			}
			l.awaitWaiting(t, 40, len(held))
			q.sender.mu.Lock()
			q.sender.busy = 0
			q.sender.next()
			q.sender.mu.Unlock()
			for _, w := range waiting {
				require.NotZero(t, etcdtest.Receive(t, w))
			}
			released.Wait()
			awaitKeys(t, client, space.Prefix+"/locks/sku", 0)
			awaitKeys(t, client, space.Prefix+"/locks/new", 40)
		})
	}
}
