package etcd

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// renewals renews leases over one stream, opened when it is needed and kept: the
// client authenticates for each stream that it opens, and etcd checks a password
// slowly, on purpose.
type renewals struct {
	remote pb.LeaseClient

	mu   sync.Mutex // one renewal at a time
	kept *renewalStream
}

// renew renews a lease once, and returns the time to live in seconds, 0 if there
// is no such lease. A stream that was kept may have died, or its token expired:
// then a new one is opened at once.
func (r *renewals) renew(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		fresh := r.kept == nil
		if fresh {
			r.kept = newRenewalStream()
		}
		ttl, err := r.kept.renew(ctx, r.remote, id)
		if err == nil {
			return ttl, nil
		}
		// An answer that comes late must not be taken for that of a later renewal (F3).
		r.drop()
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case fresh:
			return 0, rpctypes.Error(err)
		}
	}
}

// close ends the stream; callers see to it that nothing is renewed any more.
func (r *renewals) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != nil {
		r.drop()
	}
}

func (r *renewals) drop() {
	r.kept.cancel()
	r.kept = nil
}

// renewalStream is a stream, opened by the first renewal. It ends with any
// renewal that ctx ends.
type renewalStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	stream pb.Lease_LeaseKeepAliveClient
}

func newRenewalStream() *renewalStream {
	s := &renewalStream{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *renewalStream) renew(ctx context.Context, remote pb.LeaseClient, id clientv3.LeaseID) (ttl int64, err error) {
	defer context.AfterFunc(ctx, s.cancel)()
	if s.stream == nil {
		if s.stream, err = remote.LeaseKeepAlive(s.ctx); err != nil {
			return 0, err
		}
	}
	if err := s.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, err
	}
	resp, err := s.stream.Recv()
	if err != nil {
		return 0, err
	}
	return resp.TTL, nil
}
