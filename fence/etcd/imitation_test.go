package etcd

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/etcdtest"
	"github.com/fencekit/fencekit/internal/test/testenv/etcdserver"
)

// imitation is a server with etcd's API that puts what a Txn puts under the key that the Txn compares.
type imitation struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer

	mu       sync.Mutex
	revision int64
	keys     map[string]*mvccpb.KeyValue
}

func (s *imitation) header() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: s.revision} }

func (s *imitation) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.LeaseGrantResponse{Header: s.header(), ID: r.TTL, TTL: r.TTL}, nil
}

func (s *imitation) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, kv := range s.keys {
		if kv.Lease == r.ID {
			delete(s.keys, key)
		}
	}
	return &pb.LeaseRevokeResponse{Header: s.header()}, nil
}

func (s *imitation) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(r), nil
}

func (s *imitation) get(r *pb.RangeRequest) *pb.RangeResponse {
	resp := &pb.RangeResponse{Header: s.header()}
	if kv := s.keys[string(r.Key)]; kv != nil {
		resp.Kvs, resp.Count = []*mvccpb.KeyValue{kv}, 1
	}
	return resp
}

// Txn takes any comparison of a revision with 0, or with one that doesn't exist yet, for a test that the key is absent.
func (s *imitation) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp, ops := &pb.TxnResponse{Succeeded: true}, r.Success
	for _, c := range r.Compare {
		if s.keys[string(c.Key)] != nil || c.Target == pb.Compare_CREATE && c.Result == pb.Compare_LESS {
			resp.Succeeded, ops = false, r.Failure
		}
	}
	for _, op := range ops {
		answer := &pb.ResponseOp{}
		switch put := op.GetRequestPut(); {
		case put != nil:
			s.revision++
			key := r.Compare[0].Key
			s.keys[string(key)] = &mvccpb.KeyValue{
				Key: key, Value: put.Value, Lease: put.Lease, CreateRevision: s.revision, ModRevision: s.revision, Version: 1,
			}
			answer.Response = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{}}
		default:
			answer.Response = &pb.ResponseOp_ResponseRange{ResponseRange: s.get(op.GetRequestRange())}
		}
		resp.Responses = append(resp.Responses, answer)
	}
	resp.Header = s.header()
	return resp, nil
}

func TestCheckAndAcquire_RefuseAServerThatOnlyImitatesEtcd(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	fake, server := &imitation{revision: 1, keys: map[string]*mvccpb.KeyValue{}}, grpc.NewServer()
	pb.RegisterKVServer(server, fake)
	pb.RegisterLeaseServer(server, fake)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client := dial(t, "http://"+listener.Addr().String())
	l := newTestLocker(t, client, fresh(t))
	err = l.Check(patient(t))
	requireReason(t, err, fence.Imitated)
	require.ErrorContains(t, err, listener.Addr().String())
	fake.mu.Lock()
	require.Empty(t, fake.keys, "Check left a key")
	fake.mu.Unlock()
	for _, acquire := range []func(context.Context, string) (fence.Lease, error){l.Acquire, l.TryAcquire} {
		_, err := acquire(patient(t), "r")
		requireReason(t, err, fence.Imitated)
	}
	election, err := l.Election("e")
	require.NoError(t, err)
	_, err = election.Campaign(patient(t), "me")
	requireReason(t, err, fence.Imitated)
}

func TestCheckAndAcquire_AskOnceWhetherTheServerIsEtcd(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	client := dial(t, etcdserver.Shared(t).Endpoint(),
		etcdtest.OnTxn(func(_ context.Context, txn *pb.TxnRequest, send func() error) error {
			if etcdtest.Puts(txn, "-named") {
				asked.Add(1)
			}
			return send()
		}))
	for _, first := range []func(*Locker){
		func(l *Locker) { require.NoError(t, l.Check(patient(t))) },
		func(l *Locker) { release(t, acquire(t, l, "r")) },
	} {
		asked.Store(0)
		l := newTestLocker(t, client, fresh(t))
		for range 2 {
			first(l)
			require.NoError(t, l.Check(patient(t)))
			release(t, acquire(t, l, "r"))
		}
		require.EqualValues(t, 1, asked.Load())
		awaitKeys(t, client, l.cluster.Keys.Prefix, 0)
		// Another server may answer once etcd went back.
		setEpoch(t, client, l, "2")
		release(t, acquire(t, l, "r"))
		_, err := client.Delete(patient(t), l.cluster.Keys.Epoch())
		require.NoError(t, err)
		requireWentBack(t, l, "epoch")
		setEpoch(t, client, l, "3")
		release(t, acquire(t, l, "r"))
		require.EqualValues(t, 2, asked.Load())
	}
}
