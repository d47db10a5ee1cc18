package watch

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

type stream struct {
	*Watcher
	rpc pb.Watch_WatchClient
	ctx context.Context
	end context.CancelCauseFunc

	answers atomic.Bool

	// Guarded by Watcher.mu:

	// In the order of etcd's answers: a rejection doesn't name its request.
	unanswered []pendingRequest
	// The server uses our ids for watches. One that makes up its own may answer in any order, so it is asked for
	// one watch at a time.
	keepsIDs bool
	ids      map[int64]int64
}

type pendingRequest struct {
	id   int64
	sent time.Time
}

func (w *Watcher) openStream(ctx context.Context, again bool) (answered bool, err error) {
	conn, done, err := w.cluster.Stream(again)
	if err != nil {
		return false, err
	}
	defer done()
	s := &stream{Watcher: w, ids: map[int64]int64{}}
	s.ctx, s.end = context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer s.end(nil)
	// The client authenticates for each stream, and would wait forever for a silent member.
	opening := time.AfterFunc(w.cluster.RequestTimeout, s.silent)
	opened, err := pb.NewWatchClient(conn).Watch(s.ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
	opening.Stop()
	if err != nil {
		return false, err
	}
	s.rpc = opened
	w.restart()
	received := make(chan struct{})
	go func() {
		defer close(received)
		s.end(s.receive()) // so that a blocked Send ends
	}()
	go s.checkAll()
	s.sendAll()
	<-received
	return s.answers.Load(), context.Cause(s.ctx)
}

func (w *Watcher) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outbox = nil
	for _, f := range w.watches {
		w.request(f)
	}
}

func (s *stream) sendAll() {
	for {
		for req := s.next(); req != nil; req = s.next() {
			if err := s.rpc.Send(req); err != nil {
				return
			}
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *stream) next() *pb.WatchRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.outbox) == 0 {
		return nil
	}
	req := s.outbox[0]
	if create := req.GetCreateRequest(); create != nil {
		if !s.keepsIDs && len(s.unanswered) > 0 {
			return nil
		}
		s.unanswered = append(s.unanswered, pendingRequest{create.WatchId, time.Now()})
	}
	if s.outbox = s.outbox[1:]; len(s.outbox) == 0 {
		s.outbox = nil
	}
	return req
}

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

// check ends a silent stream. Its probe is a request for a watch, because etcd doesn't answer progress requests
// while nothing is written.
func (s *stream) check() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.watches) == 0:
	case len(s.unanswered) == 0:
		s.lastID++
		s.create(s.probe(s.lastID))
	case time.Since(s.unanswered[0].sent) >= s.cluster.RequestTimeout: // mutant: watch-that-fell-silent-is-waited-for
		s.silent()
	}
}

func (s *stream) silent() {
	s.answers.Store(false)
	s.end(fmt.Errorf("etcd: no answer to a watch within %v", s.cluster.RequestTimeout))
}

func (w *Watcher) probe(id int64) *pb.WatchCreateRequest {
	return &pb.WatchCreateRequest{WatchId: id, Key: []byte(w.cluster.Keys.Epoch())}
}

func (s *stream) receive() error {
	for {
		resp, err := s.rpc.Recv()
		if err != nil {
			return err
		}
		s.answers.Store(true)
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

func (s *stream) created(resp *pb.WatchResponse) error {
	f, fromNow, err := s.answered(resp)
	switch {
	case err != nil:
		return err
	case f == nil: // a probe, or removed meanwhile
	case resp.Canceled:
		s.watchRejected(f)
	case fromNow:
		s.relist(f)
	}
	return nil
}

func (s *stream) answered(resp *pb.WatchResponse) (f *Follower, fromNow bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unanswered) == 0 {
		return nil, false, fmt.Errorf("etcd: a watch was created that was not asked for: %s", resp.CancelReason)
	}
	asked := s.unanswered[0].id
	s.unanswered = s.unanswered[1:]
	s.wakeUp()
	f = s.watches[asked]
	switch {
	case resp.Canceled:
		return f, false, nil
	case s.keepsIDs && resp.WatchId != asked:
		return nil, false, fmt.Errorf("etcd: asked for watch %d, which was answered as %d", asked, resp.WatchId)
	}
	s.keepsIDs = resp.WatchId == asked
	s.member.Store(s.keepsIDs)
	if f == nil {
		s.cancel(resp.WatchId)
		return nil, false, nil
	}
	s.ids[resp.WatchId] = asked
	f.created, f.serverID = true, resp.WatchId
	if f.fromNow {
		f.missed() // what changed between the list, or the write of an own key, and the watch
	}
	return f, f.fromNow, nil
}

func (s *stream) dispatch(resp *pb.WatchResponse) error {
	s.mu.Lock()
	f := s.watches[s.ids[resp.WatchId]]
	if resp.Canceled {
		delete(s.ids, resp.WatchId)
	}
	s.mu.Unlock()
	switch {
	case f == nil:
	case resp.CompactRevision != 0:
		s.restartFollower(f)
	case resp.Canceled:
		return fmt.Errorf("etcd: watch cancelled: %s", resp.CancelReason)
	default:
		return f.Events(resp.Events)
	}
	return nil
}
