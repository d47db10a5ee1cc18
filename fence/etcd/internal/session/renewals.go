package session

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// leases uses the raw protocol, because KeepAliveOnce retries without a pause while etcd can't be reached. It keeps
// its stream: the client authenticates for each one, and etcd checks passwords slowly, on purpose.
type leases struct {
	cluster *cluster.Cluster
	epoch   atomic.Int64 // in which the latest lease was granted
	looking atomic.Bool

	mu     sync.Mutex
	kept   *renewalStream
	failed bool
}

func (r *leases) Grant(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, time.Duration, error) {
	if err := r.cluster.Recover(ctx); err != nil {
		return 0, 0, err
	}
	e, err := r.cluster.ReadEpoch(ctx) // the mark's may be old, or that of a process that has seen none
	if err != nil {
		return 0, 0, err
	}
	r.epoch.Store(e.Number)
	sent := r.cluster.Sending()
	resp, err := r.cluster.Client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return 0, 0, err
	}
	if err := r.cluster.Check(sent, resp.ResponseHeader); err != nil {
		return 0, 0, err
	}
	return resp.ID, time.Duration(resp.TTL) * time.Second, r.cluster.CheckServer(ctx, resp.ID)
}

// KeepAlive opens a new stream at once if the kept one has died or its token has expired. A silent member returns
// no error, so after a third of the time it opens another stream beside it, to the next member.
func (r *leases) KeepAlive(ctx context.Context, id clientv3.LeaseID) (ttl time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.kept
	r.kept = nil
	end, _ := ctx.Deadline()
	another := time.NewTicker(max(time.Until(end)/3, time.Millisecond)) // three streams in all
	defer another.Stop()
	// No stream outlives the call: a late answer must not be taken for that of a later renewal.
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, pending := make(chan renewalAnswer), 0
	try := func(s *renewalStream) {
		pending++
		running.Go(func() {
			ttl, err := s.renew(ctx, id)
			if err != nil {
				s.cancel()
			}
			select {
			case answers <- renewalAnswer{s, ttl, err}:
			case <-ctx.Done():
				s.cancel()
			}
		})
	}
	if kept == nil {
		kept = r.newStream(r.failed)
	}
	fresh := kept.stream == nil
	r.failed = true
	try(kept)
	for {
		select {
		case a := <-answers:
			pending--
			switch {
			case a.err == nil:
				r.kept, r.failed = a.stream, false
				r.lookForRaise() // mutant: holder-that-only-renews-misses-the-epoch
				return time.Duration(a.ttl) * time.Second, nil
			case pending > 0:
			case a.stream == kept && !fresh:
				try(r.newStream(false))
			case errors.Is(rpctypes.Error(a.err), cluster.ErrLeaseGone):
				return 0, nil
			default:
				return 0, rpctypes.Error(a.err)
			}
		case <-another.C:
			try(r.newStream(true))
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// lookForRaise ends the session if the epoch has changed. Its read may be stale, so it is only a reason to ask again
// through raft. It doesn't delay the renewal; after an error the next one looks again.
func (r *leases) lookForRaise() {
	if !r.looking.CompareAndSwap(false, true) {
		return
	}
	r.cluster.Tasks.Start(func(ctx context.Context) {
		defer r.looking.Store(false)
		request, cancel := context.WithTimeout(ctx, r.cluster.RequestTimeout)
		defer cancel()
		if e, err := r.cluster.ReadEpoch(request); err == nil && e.Number != r.epoch.Load() {
			r.cluster.CheckNow(ctx)
		}
	})
}

func (r *leases) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != nil {
		r.kept.cancel()
		r.kept = nil
	}
}

type renewalAnswer struct {
	stream *renewalStream
	ttl    int64
	err    error
}

type renewalStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	open   func() (pb.Lease_LeaseKeepAliveClient, error)
	stream pb.Lease_LeaseKeepAliveClient
}

func (r *leases) newStream(again bool) *renewalStream {
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
