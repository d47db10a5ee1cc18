package etcd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/testenv/etcdserver"
)

func TestProclaim_ReplacesTheValueAndNothingElse(t *testing.T) {
	t.Parallel()
	all := newElections(t, fresh(t), 2)
	led := campaign(t, all[0], "one")
	waiting := campaigning(patient(t), all[1], "")
	client, queue := all[0].locker.cluster.Client, all[0].locker.cluster.Keys.Queue("leader")
	before := awaitKeys(t, client, queue, 2)
	for _, value := range []string{"two", "two", "", "three"} {
		require.NoError(t, led.Proclaim(patient(t), value))
		requireLeader(t, all[1], led, value)
	}
	after := awaitKeys(t, client, queue, 2)
	require.Equal(t, before[0].Key, after[0].Key)
	require.Equal(t, before[0].CreateRevision, after[0].CreateRevision)
	require.Equal(t, before[0].Lease, after[0].Lease)
	require.Equal(t, before[1], after[1])
	require.Empty(t, waiting)
	require.NoError(t, led.Context().Err())
	require.NoError(t, led.Resign(patient(t)))
	require.ErrorIs(t, led.Proclaim(patient(t), "four"), fence.ErrReleased)
	require.NoError(t, (<-waiting).err)
}

// blind is a stream interceptor whose client gets no watch.
func blind(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	if method == pb.Watch_Watch_FullMethodName {
		return nil, errors.New("no watch today")
	}
	return open(ctx, desc, cc, method, opts...)
}

// A leader doesn't know that its key was deleted; a later leader has proclaimed.
func TestProclaim_OfADeposedLeaderIsRejected(t *testing.T) {
	t.Parallel()
	endpoint := etcdserver.Shared(t).Endpoint()
	cfg := fresh(t)
	old := election(t, newTestLocker(t, dial(t, endpoint, grpc.WithChainStreamInterceptor(blind)), cfg), "leader")
	e := election(t, newTestLocker(t, dial(t, endpoint), cfg), "leader")
	for name, usurp := range map[string]func(key string){
		"the key is gone": func(string) {},
		"another of the same name": func(key string) {
			_, err := e.locker.cluster.Client.Put(patient(t), key, "")
			require.NoError(t, err)
		},
	} {
		deposed := campaign(t, old, "old")
		key := keyOf(deposed)
		_, err := e.locker.cluster.Client.Delete(patient(t), key)
		require.NoError(t, err)
		led := campaign(t, e, "new")
		usurp(key)
		require.NoError(t, deposed.Context().Err(), "it has not heard of it")
		loss := new(fence.LeaseLostError)
		require.ErrorAs(t, deposed.Proclaim(patient(t), "old again"), &loss, name)
		require.Equal(t, fence.LeaseLostError{Grant: deposed.Grant(), Reason: fence.LossDeleted}, *loss)
		require.ErrorIs(t, deposed.Context().Err(), context.Canceled, "now it knows")
		requireLeader(t, old, led, "new")
		resp, err := e.locker.cluster.Client.Get(patient(t), key)
		require.NoError(t, err)
		for _, kv := range resp.Kvs {
			require.Empty(t, kv.Value)
		}
		require.NoError(t, led.Resign(patient(t)))
		_, err = e.locker.cluster.Client.Delete(patient(t), key)
		require.NoError(t, err)
	}
}

func isProclaim(txn *pb.TxnRequest) bool {
	return len(txn.Compare) == 1 && txn.Compare[0].Target == pb.Compare_MOD
}

// proclaims is isProclaim for an interceptor.
func proclaims(req any) bool {
	txn, ok := req.(*pb.TxnRequest)
	return ok && isProclaim(txn)
}

func proclaiming(ctx context.Context, led fence.Leadership, value string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- led.Proclaim(ctx, value) }()
	return done
}

// A Proclaim of unknown outcome that arrives after a later one must not undo it.
func TestProclaim_ThatArrivesLateTakesNoEffect(t *testing.T) {
	t.Parallel()
	held := etcdtest.NewLateTxn(isProclaim)
	e := election(t, newTestLocker(t, dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(held.Intercept)), fresh(t)), "leader")
	led := campaign(t, e, "0")

	held.Arm()
	err := led.Proclaim(patient(t), "lost")
	deliver := held.Kept(t)
	require.True(t, inDoubt(err))
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.NoError(t, led.Proclaim(patient(t), "1"))
	late := deliver()
	require.NotNil(t, late)
	require.False(t, late.Succeeded)
	requireLeader(t, e, led, "1")

	held.Arm()
	require.True(t, inDoubt(led.Proclaim(patient(t), "arrived")))
	deliver = held.Kept(t)
	require.True(t, deliver().Succeeded)
	requireLeader(t, e, led, "arrived")
	require.NoError(t, led.Proclaim(patient(t), "2"), "it replaces the value that it finds")
	requireLeader(t, e, led, "2")
	require.NoError(t, led.Proclaim(patient(t), "3"))
}

// The client sends a Txn again when it is answered "cancelled".
func TestProclaim_ThatIsSentTwiceTakesEffectOnce(t *testing.T) {
	t.Parallel()
	armed := make(chan struct{}, 1)
	sent := make(chan struct{}, 10)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if !proclaims(req) {
				return err
			}
			sent <- struct{}{}
			select {
			case <-armed:
				return status.Error(codes.Canceled, "not by the caller")
			default:
				return err
			}
		}))
	e := election(t, newTestLocker(t, client, fresh(t)), "leader")
	led := campaign(t, e, "0")
	armed <- struct{}{}
	require.NoError(t, led.Proclaim(patient(t), "1"))
	require.Len(t, sent, 2)
	requireLeader(t, e, led, "1")
	require.NoError(t, led.Proclaim(patient(t), "2"))
}

func TestProclaim_EndsWithItsContextOrTheLeadership(t *testing.T) {
	t.Parallel()
	p := newProxy(t, etcdserver.Shared(t).Endpoint())
	cfg := fresh(t)
	cfg.RequestTimeout = time.Hour
	led := campaign(t, election(t, newTestLocker(t, dial(t, p.endpoint()), cfg), "leader"), "0")
	for range 20 { // its turn is free as well
		err := led.Proclaim(over(t), "x")
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, inDoubt(err), "nothing was sent")
	}

	p.set(func() { p.muted = true })
	ctx, cancel := context.WithCancelCause(t.Context())
	first := proclaiming(ctx, led, "1")
	awaitValue(t, cfg, led, "1")
	cancel(errTired)
	err := <-first
	require.True(t, inDoubt(err))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errTired)

	p.set(func() { p.muted = false })
	require.NoError(t, led.Proclaim(patient(t), "2"))
	p.set(func() { p.muted = true })
	underWay := proclaiming(t.Context(), led, "3")
	awaitValue(t, cfg, led, "3")
	waiting := proclaiming(t.Context(), led, "4")
	require.ErrorIs(t, led.Release(over(t)), context.Canceled)
	for _, done := range []<-chan error{underWay, waiting} {
		select {
		case err := <-done:
			require.ErrorIs(t, err, fence.ErrReleased)
		case <-patient(t).Done():
			require.FailNow(t, "it waits on although the leadership is over")
		}
	}
	p.set(func() { p.muted = false })
}

// Of two at once, the later would compare with an outdated revision.
func TestProclaim_CallsTakeEffectOneAfterAnother(t *testing.T) {
	t.Parallel()
	var underWay sync.Mutex // only tried: the calls have to exclude each other
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if proclaims(req) && holds(t, underWay.TryLock(), "two are under way") {
				defer underWay.Unlock()
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
	led := campaign(t, election(t, newTestLocker(t, client, fresh(t)), "leader"), "")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 5 {
				err := led.Proclaim(patient(t), strconv.Itoa(i))
				holds(t, err == nil, "proclaim: %v", err)
			}
		})
	}
	all.Wait()
}

// awaitValue waits until etcd has a value at the leader's key.
func awaitValue(t testing.TB, cfg *Config, led fence.Leadership, value string) {
	t.Helper()
	e := election(t, newTestLocker(t, etcdserver.Client(t), cfg), led.Grant().Resource)
	for now, err := range e.Observe(patient(t)) {
		if err == nil && now.Value == value {
			return
		}
	}
	require.FailNow(t, "the value never came")
}

// An answer of etcd's that proves that nothing was written is no unknown outcome. "No
// space" is not such an answer: etcd may give it after the write.
func TestProclaim_ThatEtcdRejectsHasNoEffect(t *testing.T) {
	t.Parallel()
	rejection := make(chan error, 1)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if proclaims(req) {
				select {
				case err := <-rejection:
					return err
				default:
				}
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
	e := election(t, newTestLocker(t, client, fresh(t)), "leader")
	led := campaign(t, e, "0")
	rejection <- status.Error(codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded")
	err := led.Proclaim(patient(t), "1")
	requireReason(t, err, fence.NoSpace)
	require.True(t, inDoubt(err))
	rejection <- status.Error(codes.ResourceExhausted, "etcdserver: too many requests")
	err = led.Proclaim(patient(t), "1")
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.False(t, inDoubt(err))
	requireLeader(t, e, led, "0")

	rejection <- status.Error(codes.NotFound, "etcdserver: requested lease not found")
	require.ErrorIs(t, led.Proclaim(patient(t), "1"), fence.ErrLeaseLost)
	require.Equal(t, fence.LossExpired, lossOf(t, led))

	led = campaign(t, e, "2")
	require.NoError(t, client.Close())
	err = led.Proclaim(patient(t), "3")
	require.ErrorIs(t, err, cluster.ErrClientClosed)
	require.False(t, inDoubt(err))
}

// Proclaim gives up if other clients keep writing the key.
func TestProclaim_GivesUpOnAKeyThatChangesAllTheTime(t *testing.T) {
	t.Parallel()
	admin := etcdserver.Client(t)
	client := dial(t, etcdserver.Shared(t).Endpoint(), grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if proclaims(req) {
				key := req.(*pb.TxnRequest).Compare[0].Key
				if _, err := admin.Put(ctx, string(key), "vandal", clientv3.WithIgnoreLease()); err != nil {
					return err
				}
			}
			return invoke(ctx, method, req, reply, cc, opts...)
		}))
	led := campaign(t, election(t, newTestLocker(t, client, fresh(t)), "leader"), "0")
	err := led.Proclaim(patient(t), "1")
	require.ErrorIs(t, err, fence.ErrUnavailable)
	require.False(t, inDoubt(err))
	require.ErrorContains(t, err, keyOf(led))
}
