package watch

import (
	"context"
	"fmt"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// stream is one gRPC stream of a Watcher.
type stream struct {
	*Watcher
	rpc pb.Watch_WatchClient
	ctx context.Context // ends with the stream; its cause says why
	end context.CancelCauseFunc

	// Requests for watches in the order in which etcd will answer them: a rejection
	// does not name its request. Guarded by Watcher.mu.
	unanswered []pendingRequest
}

// pendingRequest is a request for a watch that etcd has not answered yet.
type pendingRequest struct {
	order
	sent time.Time
}

// openStream opens a stream, watches everything over it, and returns why it ended.
func (w *Watcher) openStream(ctx context.Context) error {
	s := &stream{Watcher: w}
	s.ctx, s.end = context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer s.end(nil)
	// The client authenticates for each stream, and would wait forever for a silent member.
	opening := time.AfterFunc(w.cluster.RequestTimeout, s.silent)
	opened, err := w.remote.Watch(s.ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
	opening.Stop()
	if err != nil {
		return err
	}
	s.rpc = opened
	w.restart()
	received := make(chan struct{})
	go func() {
		defer close(received)
		s.end(s.receive()) // so that a Send that blocks ends too
	}()
	go s.checkAll()
	s.sendAll()
	<-received
	return context.Cause(s.ctx)
}

// restart queues a request for every watch: a new stream has none.
func (w *Watcher) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outbox = nil
	for id, f := range w.watches {
		f.asked = false
		w.send(order{createWatch, id})
	}
}

// sendAll sends what is queued, until the stream ends.
func (s *stream) sendAll() {
	for {
		s.mu.Lock()
		orders := s.outbox
		s.outbox = nil
		s.mu.Unlock()
		for _, o := range orders {
			req := s.request(o)
			if req == nil {
				continue
			}
			if err := s.rpc.Send(req); err != nil {
				return // receive returns the reason
			}
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
	}
}

// checkAll checks the stream until it ends. It has a goroutine of its own, since a Send
// blocks when the other end reads nothing.
func (s *stream) checkAll() {
	ticker := time.NewTicker(min(s.pollInterval, s.cluster.RequestTimeout))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.check()
		case <-s.ctx.Done():
			return
		}
	}
}

// check ends a stream on which etcd, or the network to it, has fallen silent: a holder
// would never learn that others wait. The probe is a request for a watch, because etcd
// doesn't answer progress requests while nothing is written.
func (s *stream) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.watches) == 0:
	case len(s.unanswered) == 0:
		s.lastID++
		s.send(order{probe, s.lastID})
	case time.Since(s.unanswered[0].sent) >= s.cluster.RequestTimeout:
		s.silent()
	}
}

func (s *stream) silent() {
	s.end(fmt.Errorf("etcd: no answer to a watch within %v", s.cluster.RequestTimeout))
}

// request returns the request for o; nil if the watch was removed before it was requested.
func (s *stream) request(o order) *pb.WatchRequest {
	if o.kind == cancelWatch {
		return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: o.id},
		}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	create := &pb.WatchCreateRequest{WatchId: o.id, Key: []byte(s.cluster.Keys.Epoch())} // a probe's: every locker may read it
	if o.kind == createWatch {
		f := s.watches[o.id]
		if f == nil {
			return nil
		}
		create.Key, create.RangeEnd = []byte(f.queue), []byte(clientv3.GetPrefixRangeEnd(f.queue))
		create.StartRevision = f.resume()
		f.asked, f.fromNow = true, create.StartRevision == 0
	}
	s.unanswered = append(s.unanswered, pendingRequest{o, time.Now()})
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
}

func (s *stream) receive() error {
	for {
		resp, err := s.rpc.Recv()
		if err != nil {
			return err
		}
		if resp.Created {
			err = s.created(resp)
		} else {
			err = s.dispatch(resp)
		}
		if err != nil {
			return err
		}
	}
}

// created handles the answer to a request for a watch.
func (s *stream) created(resp *pb.WatchResponse) error {
	s.mu.Lock()
	if len(s.unanswered) == 0 {
		s.mu.Unlock()
		return fmt.Errorf("etcd: a watch was created that was not asked for: %s", resp.CancelReason)
	}
	asked := s.unanswered[0]
	s.unanswered = s.unanswered[1:]
	if asked.kind == probe && !resp.Canceled {
		s.send(order{cancelWatch, asked.id})
	}
	f := s.watches[asked.id]
	fromNow := f != nil && f.fromNow
	s.mu.Unlock()
	switch {
	case f == nil: // a probe, or removed meanwhile
	case resp.Canceled:
		s.watchRejected(f)
	case fromNow: // what was listed before may be older than the watch
		s.relist(f)
	}
	return nil
}

// dispatch passes a response to the follower of its queue. An error ends the stream.
func (s *stream) dispatch(resp *pb.WatchResponse) error {
	s.mu.Lock()
	f := s.watches[resp.WatchId]
	s.mu.Unlock()
	switch {
	case f == nil: // removed meanwhile
	case resp.CompactRevision != 0:
		f.missed()
		s.rewatch(resp.WatchId)
	case resp.Canceled:
		return fmt.Errorf("etcd: watch cancelled: %s", resp.CancelReason)
	default:
		f.Events(resp.Events)
	}
	return nil
}
