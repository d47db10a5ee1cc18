package etcd

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

type txns struct {
	mu     sync.Mutex
	seen   []*pb.TxnRequest
	hold   chan struct{} // Txns that put wait for it before they are sent; nil lets them go
	deny   string        // a Txn that puts such a key is rejected, with the denial
	denial error
}

func newTxns() *txns { return &txns{denial: rpctypes.ErrGRPCPermissionDenied} }

func (x *txns) reset() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(x.seen)
	x.seen = nil
	return n
}

func (x *txns) option() grpc.DialOption {
	return etcdtest.OnTxn(func(ctx context.Context, txn *pb.TxnRequest, send func() error) error {
		x.mu.Lock()
		x.seen = append(x.seen, txn)
		hold, denied := x.hold, x.deny != "" && etcdtest.Puts(txn, x.deny)
		x.mu.Unlock()
		if hold != nil && etcdtest.IsAcquire(txn) {
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if denied {
			return x.denial
		}
		return send()
	})
}

// loaded is a Locker's queues with Txns under way that hold up others.
type loaded struct {
	*Locker
	*txns
	held  []*position
	first []<-chan result // of the Txns under way
}

func newLoaded(t *testing.T, held ...string) *loaded {
	x := newTxns()
	cfg := fresh(t)
	cfg.TTL, cfg.requestTimeout = 2*etcdtest.Patience, 2*etcdtest.Patience // no Txn ends while a test waits for another
	l := newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(), x.option()), cfg)
	l.sender.stuckAfter = time.Hour
	release(t, acquire(t, l, "warm"))
	ln := &loaded{Locker: l, txns: x}
	for _, resource := range held {
		ln.held = append(ln.held, acquire(t, l, resource))
	}
	x.mu.Lock()
	x.hold = make(chan struct{})
	x.mu.Unlock()
	x.reset()
	for i := range maxFlights {
		ln.first = append(ln.first, acquiring(patient(t), l, fmt.Sprint("first/", i)))
		ln.awaitSent(t, i+1)
	}
	return ln
}

func (ln *loaded) awaitSent(t *testing.T, n int) {
	require.Eventually(t, func() bool {
		ln.txns.mu.Lock()
		defer ln.txns.mu.Unlock()
		return len(ln.seen) == n
	}, etcdtest.Patience, time.Millisecond)
}

func (ln *loaded) awaitWaiting(t *testing.T, puts, dels int) {
	require.Eventually(t, func() bool {
		ln.sender.mu.Lock()
		defer ln.sender.mu.Unlock()
		return len(ln.sender.puts) == puts && len(ln.sender.dels) == dels
	}, etcdtest.Patience, time.Millisecond)
}

func (ln *loaded) letGoAndHoldTheNext() {
	ln.txns.mu.Lock()
	defer ln.txns.mu.Unlock()
	close(ln.hold)
	ln.hold = make(chan struct{})
}

func (ln *loaded) letGo() {
	ln.txns.mu.Lock()
	defer ln.txns.mu.Unlock()
	close(ln.hold)
	ln.hold = nil
}

func releasing(ctx context.Context, le *position) <-chan error {
	done := make(chan error, 1)
	go func() { done <- le.Release(ctx) }()
	return done
}

func TestSender_WhatComesMeanwhileGoesTogether(t *testing.T) {
	t.Parallel()
	ln := newLoaded(t)
	var waiting []<-chan result
	for i := range maxPuts {
		waiting = append(waiting, acquiring(patient(t), ln.Locker, fmt.Sprint("sku/", i)))
	}
	ln.awaitWaiting(t, maxPuts, 0)
	ln.reset()
	ln.letGo()
	tokens := map[fence.Token]bool{}
	for _, w := range waiting {
		le := granted(t, w)
		tokens[le.Grant().Token] = true
	}
	require.Len(t, tokens, 1, "one Txn for all that waited")
	require.Equal(t, 1, ln.reset())
	for _, w := range ln.first {
		granted(t, w)
	}
	awaitKeys(t, ln.cluster.Client, ln.cluster.Keys.Prefix+"/locks/sku", maxPuts)
}

// Equal tokens of one resource would not be fenced from each other.
func TestSender_TwoOfOneResourceShareNoTxn(t *testing.T) {
	t.Parallel()
	ln := newLoaded(t)
	for i := range 5 {
		_ = acquiring(patient(t), ln.Locker, "r")
		ln.awaitSent(t, maxFlights+i) // the first of them waits, the others go out alone
	}
	ln.letGo()
	kvs := awaitKeys(t, ln.cluster.Client, ln.cluster.Keys.Queue("r"), 5)
	for i := range kvs[1:] {
		require.Greater(t, kvs[i+1].CreateRevision, kvs[i].CreateRevision)
	}
}

// Each of four calls waits for its own key alone, though one Txn writes or deletes all of them.
func TestSender_CallsThatGiveUpHarmNoOtherOfTheirTxn(t *testing.T) {
	t.Parallel()
	ln := newLoaded(t, "gone", "stays")
	ctx, giveUp := context.WithCancel(patient(t))
	early, cancel := context.WithCancel(patient(t))
	hasty, unsent := acquiring(ctx, ln.Locker, "hasty"), acquiring(early, ln.Locker, "unsent")
	patientOne := acquiring(patient(t), ln.Locker, "patient")
	ln.awaitWaiting(t, 3, 0)
	cancel()
	require.Error(t, etcdtest.Receive(t, unsent).err, "before its Txn was sent")
	gone, stays := releasing(ctx, ln.held[0]), releasing(patient(t), ln.held[1])
	ln.awaitWaiting(t, 2, 2)
	ln.letGoAndHoldTheNext()
	ln.awaitSent(t, maxFlights+1)
	giveUp()
	require.Error(t, etcdtest.Receive(t, hasty).err, "while its Txn is under way")
	require.ErrorIs(t, etcdtest.Receive(t, gone), context.Canceled)
	ln.letGo()
	granted(t, patientOne)
	require.NoError(t, etcdtest.Receive(t, stays))
	for _, resource := range []string{"hasty", "unsent", "gone", "stays"} {
		awaitKeys(t, ln.cluster.Client, ln.cluster.Keys.Queue(resource), 0)
	}
	awaitKeys(t, ln.cluster.Client, ln.cluster.Keys.Prefix, 1+maxFlights) // no void key: nothing was in doubt
}

func TestSender_AnErrorOfOneIsNotThatOfOthers(t *testing.T) {
	t.Parallel()
	ln := newLoaded(t)
	denied, allowed := acquiring(patient(t), ln.Locker, "denied"), acquiring(patient(t), ln.Locker, "allowed")
	ln.awaitWaiting(t, 2, 0)
	ln.txns.mu.Lock()
	ln.deny = "/denied/"
	ln.txns.mu.Unlock()
	ln.letGo()
	require.Error(t, etcdtest.Receive(t, denied).err)
	granted(t, allowed)
	require.Nil(t, current(ln.Locker, "denied"), "its place is free")
}

// The key of a later holder must not go before that of an earlier one, whose holder it relied on to be over.
func TestSender_DeletesAKeyNoLaterThanTheNext(t *testing.T) {
	t.Parallel()
	late := etcdtest.NewLateTxn(etcdtest.Deletes)
	l, client := locker(t, grpc.WithChainUnaryInterceptor(late.Intercept))
	first := acquire(t, l, "r")
	second := acquiring(patient(t), l, "r")
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 2)
	l.sender.cleaning = true // nothing repeats the deletion that is late
	late.Arm()
	release(t, first)
	deliver := late.Kept(t)
	release(t, granted(t, second))
	awaitKeys(t, client, l.cluster.Keys.Queue("r"), 0)
	require.NotNil(t, deliver())
}

// occupy makes s wait as if Txns were under way, once none is: a key may be there before its Txn is over.
func occupy(t *testing.T, s *sender) {
	t.Helper()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.busy > 0 {
			return false
		}
		s.busy = maxFlights
		return true
	}, etcdtest.Patience, time.Millisecond)
}

// Keys go in their order, also if there are more than go in one Txn.
func TestSender_DeletesManyInTheirOrder(t *testing.T) {
	t.Parallel()
	l, client := locker(t)
	l.sender.stuckAfter = time.Hour
	queue := l.cluster.Keys.Queue("r")
	var waiting []<-chan result
	for i := range 5 {
		waiting = append(waiting, acquiring(patient(t), l, "r"))
		awaitKeys(t, client, queue, i+1)
	}
	kvs := awaitKeys(t, client, queue, 5)
	changes := client.Watch(patient(t), queue, clientv3.WithPrefix(), clientv3.WithRev(kvs[4].ModRevision+1))
	occupy(t, l.sender) // nothing is deleted yet
	released := make(chan error, 1)
	for i, w := range waiting {
		le := granted(t, w)
		if i < 4 {
			release(t, le) // which doesn't wait, since the next call does
			continue
		}
		go func() { released <- le.Release(patient(t)) }()
	}
	require.Eventually(t, func() bool {
		l.sender.mu.Lock()
		defer l.sender.mu.Unlock()
		return len(l.sender.dels) == 5
	}, etcdtest.Patience, time.Millisecond)
	l.sender.mu.Lock()
	l.sender.busy, l.sender.most, l.sender.dels = 0, 2, l.sender.dels[4:] // as if Txns that delete the others were late
	taken := l.sender.takeDels(4)
	l.sender.mu.Unlock()
	require.Empty(t, taken)
	require.NoError(t, etcdtest.Receive(t, released))
	for i := 0; i < 5; {
		for _, ev := range etcdtest.Receive(t, changes).Events {
			require.Equal(t, clientv3.EventTypeDelete, ev.Type)
			require.Equal(t, string(kvs[i].Key), string(ev.Kv.Key))
			i++
		}
	}
}

var lowLimits = []string{"--max-txn-ops=32", "--max-txn-ops=3", "--max-request-bytes=1500"}

// What is beyond a limit of etcd's goes in more Txns, each of which etcd takes.
func TestSender_KeepsToTheLimitsOfEtcd(t *testing.T) {
	t.Parallel()
	for _, flag := range lowLimits {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			x := newTxns()
			client, cfg := dial(t, startEtcd(t, &etcdserver.Config{ExtraFlags: []string{flag}}).Endpoint(), x.option()), fresh(t)
			l := newTestLocker(t, client, cfg)
			l.sender.stuckAfter = time.Hour
			var held []fence.Lease
			for len(held) < 40 {
				some, err := l.TryAcquireAll(patient(t), resources(40)[len(held):]...)
				require.NoError(t, err)
				require.NotEmpty(t, some)
				held = append(held, some...)
			}
			occupy(t, l.sender)
			ln := &loaded{Locker: l, txns: x}
			var waiting []<-chan result
			for i := range 40 {
				waiting = append(waiting, acquiring(patient(t), l, fmt.Sprint("new/", i)))
			}
			ln.awaitWaiting(t, 40, 0)
			var released sync.WaitGroup
			for _, le := range held {
				released.Go(func() { assert.NoError(t, le.Release(patient(t))) })
			}
			ln.awaitWaiting(t, 40, len(held))
			l.sender.mu.Lock()
			l.sender.busy = 0
			l.sender.next()
			l.sender.mu.Unlock()
			for _, w := range waiting {
				granted(t, w)
			}
			released.Wait()
			awaitKeys(t, client, cfg.Prefix+"/locks/sku", 0)
			awaitKeys(t, client, cfg.Prefix+"/locks/new", 40)
		})
	}
}

// The end of the session ends the calls whose Txns are under way: Close would leave them waiting.
func TestSender_TheEndOfTheSessionEndsCalls(t *testing.T) {
	t.Parallel()
	ln := newLoaded(t, "held")
	released := releasing(patient(t), ln.held[0])
	ln.awaitWaiting(t, 0, 1)
	ln.held[0].Session.End(fence.LossClosed)
	require.ErrorContains(t, etcdtest.Receive(t, released), "session is over")
	for _, first := range ln.first {
		require.Error(t, etcdtest.Receive(t, first).err)
	}
}

func TestSender_AStuckTxnHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	ln := newLoaded(t)
	ln.sender.mu.Lock()
	ln.sender.stuckAfter = time.Microsecond
	ln.sender.mu.Unlock()
	later := acquiring(patient(t), ln.Locker, "later")
	ln.awaitSent(t, maxFlights+1)
	ln.letGo()
	granted(t, later)
}
