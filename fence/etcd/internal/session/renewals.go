package session

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// renewals renews leases over one stream, opened when it is needed and kept: the
// client authenticates for each stream that it opens, and etcd checks a password
// slowly, on purpose.
type renewals struct {
	cluster *cluster.Cluster

	mu     sync.Mutex // one renewal at a time
	kept   *renewalStream
	failed bool // the last renewal did
}

// renew renews a lease once, and returns the time to live in seconds, 0 if there is no such
// lease. If the kept stream has died, or its token has expired, a new one is opened at
// once. A member that has fallen silent returns no error: so another stream is opened
// beside it, to the next member.
func (r *renewals) renew(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.failed = err != nil }()
	kept := r.kept
	r.kept = nil
	t := &renewal{id: id, answers: make(chan renewalAnswer)}
	another := time.NewTicker(perStream(ctx))
	defer another.Stop()
	// Streams that haven't answered end here: a late answer must not be taken for that of a
	// later renewal (F3).
	defer t.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if kept == nil {
		t.try(ctx, r.newStream(r.failed))
	} else {
		t.try(ctx, kept)
	}
	for {
		select {
		case a := <-t.answers:
			t.pending--
			switch {
			case a.err == nil:
				r.kept = a.stream
				return a.ttl, nil
			case t.pending > 0:
			case a.stream == kept:
				t.try(ctx, r.newStream(false))
			default:
				return 0, rpctypes.Error(a.err)
			}
		case <-another.C:
			t.try(ctx, r.newStream(true))
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// perStream is how long one stream may take to answer: a third of the time until
// ctx ends, so that three are tried.
func perStream(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Hour
	}
	return max(time.Until(end)/3, time.Millisecond)
}

// close ends the stream. Call it after the last renewal.
func (r *renewals) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != nil {
		r.kept.cancel()
		r.kept = nil
	}
}

// renewal is one renewal, on one stream or several.
type renewal struct {
	id      clientv3.LeaseID
	answers chan renewalAnswer
	pending int // tries that have not answered
	running sync.WaitGroup
}

type renewalAnswer struct {
	stream *renewalStream
	ttl    int64
	err    error
}

// try sends the renewal over s, and ends s unless a successful answer is used.
func (t *renewal) try(ctx context.Context, s *renewalStream) {
	t.pending++
	t.running.Go(func() {
		ttl, err := s.renew(ctx, t.id)
		if err != nil {
			s.cancel()
		}
		select {
		case t.answers <- renewalAnswer{s, ttl, err}:
		case <-ctx.Done():
			s.cancel()
		}
	})
}

// renewalStream is a stream that its first renewal opens. When the ctx of a renewal ends
// before its answer, the stream ends too.
type renewalStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	open   func() (pb.Lease_LeaseKeepAliveClient, error)
	stream pb.Lease_LeaseKeepAliveClient
}

// newStream returns a stream; again is as for cluster.Stream.
func (r *renewals) newStream(again bool) *renewalStream {
	s := &renewalStream{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.open = func() (pb.Lease_LeaseKeepAliveClient, error) {
		conn, done, err := r.cluster.Stream(again)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(s.ctx, done)
		return pb.NewLeaseClient(conn).LeaseKeepAlive(s.ctx)
	}
	return s
}

func (s *renewalStream) renew(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	defer context.AfterFunc(ctx, s.cancel)()
	if s.stream == nil {
		if s.stream, err = s.open(); err != nil {
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
