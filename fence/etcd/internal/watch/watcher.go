// Package watch watches the queues of one Locker over one gRPC stream.
package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// Watcher uses the raw protocol, because the client's Watch keeps goroutines for each watch. It is safe for
// concurrent use.
type Watcher struct {
	cluster      *cluster.Cluster
	pollInterval time.Duration

	wake         chan struct{}
	clientClosed chan struct{}

	member atomic.Bool

	mu      sync.Mutex
	lastID  int64
	watches map[int64]*Follower
	outbox  []*pb.WatchRequest
}

// firstID is the first id that is requested. A server that counts watches itself, as etcd's grpc-proxy does, never
// gets there.
const firstID = 1 << 32

// New returns a Watcher. Every pollInterval it probes the watch, and reads queues in which something waits.
func New(c *cluster.Cluster, pollInterval time.Duration) *Watcher {
	w := &Watcher{
		cluster: c, pollInterval: pollInterval,
		wake: make(chan struct{}, 1), clientClosed: make(chan struct{}),
		lastID: firstID, watches: map[int64]*Follower{},
	}
	c.Tasks.Start(w.run)
	c.Tasks.Start(w.poll) // mutant: waiters-go-by-the-watch-alone
	return w
}

func (w *Watcher) ClientClosed() <-chan struct{} { return w.clientClosed }

func (w *Watcher) Add(f *Follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(f)
}

func (w *Watcher) addLocked(f *Follower) {
	w.lastID++
	f.id = w.lastID
	w.watches[f.id] = f
	w.request(f)
}

func (w *Watcher) request(f *Follower) {
	f.created = false
	start := f.resume()
	f.fromNow = start == 0
	w.create(&pb.WatchCreateRequest{
		WatchId: f.id, Key: []byte(f.Queue), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(f.Queue)), StartRevision: start,
	})
}

func (w *Watcher) Remove(f *Follower) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removeLocked(f)
}

func (w *Watcher) removeLocked(f *Follower) bool {
	if f.id == 0 {
		return false
	}
	if f.created { // else cancelled when the answer comes
		w.cancel(f.serverID)
	}
	delete(w.watches, f.id)
	f.id = 0
	return true
}

func (w *Watcher) follows(f *Follower) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f.id != 0
}

func (w *Watcher) Forget(f *Follower) {
	f.mu.Lock()
	f.wrote = 0
	f.mu.Unlock()
	w.restartFollower(f)
}

func (w *Watcher) restartFollower(f *Follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f.missed()
	if w.removeLocked(f) {
		w.addLocked(f)
	}
}

func (w *Watcher) create(req *pb.WatchCreateRequest) {
	w.outbox = append(w.outbox, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}})
	w.wakeUp()
}

func (w *Watcher) cancel(id int64) {
	req := &pb.WatchCancelRequest{WatchId: id}
	w.outbox = append(w.outbox, &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: req}})
	w.wakeUp()
}

func (w *Watcher) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// CheckMember returns an error with the reason fence.Proxied if a proxy answers watches. It asks each endpoint,
// unless the last answer came from a member.
func (w *Watcher) CheckMember(ctx context.Context) (err error) {
	for n := 0; n <= len(w.cluster.Client.Endpoints()) && !w.member.Load(); n++ {
		var id int64
		if id, err = w.ask(ctx, n > 0); err != nil {
			continue
		}
		if id != firstID {
			return cluster.Because(fence.Proxied, "etcd: a proxy answers at %s, as etcd's grpc-proxy: behind it a lease may end "+
				"before its holder learns it, and a dead holder's may last twice as long; "+
				"give the client the endpoints of etcd's members", strings.Join(w.cluster.Client.Endpoints(), ", "))
		}
		w.member.Store(true)
	}
	return err
}

func (w *Watcher) ask(ctx context.Context, again bool) (int64, error) {
	conn, done, err := w.cluster.Stream(again)
	if err != nil {
		return 0, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rpc, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return 0, err
	}
	create := &pb.WatchRequest_CreateRequest{CreateRequest: w.probe(firstID)}
	if err := rpc.Send(&pb.WatchRequest{RequestUnion: create}); err != nil {
		return 0, err
	}
	resp, err := rpc.Recv()
	if err == nil && resp.Canceled {
		err = fmt.Errorf("etcd: watch rejected: %s", resp.CancelReason)
	}
	return resp.GetWatchId(), err
}

func (w *Watcher) run(ctx context.Context) {
	answered := true
	for failures := 0; ctx.Err() == nil; {
		if w.Idle() {
			select {
			case <-w.wake:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		var err error
		answered, err = w.openStream(ctx, !answered)
		if ctx.Err() != nil {
			return
		}
		if w.cluster.Closed() {
			w.cluster.Logger.Error(cluster.ErrClientClosed.Error())
			close(w.clientClosed)
			return
		}
		w.cluster.Recheck() // mutant: went-back-is-not-asked-for-when-the-watch-breaks
		w.cluster.Logger.Info("the watch on the lock queues was broken; it is set up again", "error", err)
		if time.Since(began) > time.Minute {
			failures = 0
		}
		session.Pause(ctx, failures)
		failures++
	}
}

func (w *Watcher) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches) == 0
}

var errStaleStream = errors.New("etcd: the token of the watch stream has expired")

func (w *Watcher) list(ctx context.Context, f *Follower) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cluster.RequestTimeout)
	defer cancel()
	gaps := f.Gaps()
	resp, err := w.cluster.Client.Get(ctx, f.Queue, clientv3.WithPrefix())
	if err != nil {
		return false, err
	}
	return f.Listed(gaps, resp.Header.Revision, resp.Kvs)
}

func (w *Watcher) relist(f *Follower) {
	w.cluster.Tasks.Start(func(ctx context.Context) {
		for n := 0; ctx.Err() == nil && w.follows(f); n++ {
			if used, err := w.list(ctx, f); used && err == nil {
				return
			}
			session.Pause(ctx, n)
		}
	})
}

// watchRejected finds out whether the user may not read the queue, or the stream's token has expired. Some versions
// of etcd give one error for both; a plain read tells them apart.
func (s *stream) watchRejected(f *Follower) {
	s.cluster.Tasks.Start(func(context.Context) {
		for n := 0; s.ctx.Err() == nil && s.follows(f); n++ {
			_, err := s.list(s.ctx, f)
			switch {
			case err == nil:
				s.end(errStaleStream)
			case errors.Is(err, rpctypes.ErrPermissionDenied):
				if s.Remove(f) {
					f.Listener.Denied(err)
				}
				return
			}
			session.Pause(s.ctx, n)
		}
	})
}

// listsAtATime bounds the reads of a poll, so that renewals don't wait behind thousands.
const listsAtATime = 16

// poll restarts a follower if a list is too old, because events overtook it or because etcd was restored.
func (w *Watcher) poll(ctx context.Context) {
	ticker := time.NewTicker(w.pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		followers := slices.Collect(maps.Values(w.watches))
		w.mu.Unlock()
		var lists sync.WaitGroup
		slots := make(chan struct{}, listsAtATime)
		for _, f := range followers {
			if f.Listener.Waits() {
				slots <- struct{}{}
				lists.Go(func() {
					defer func() { <-slots }()
					if used, err := w.list(ctx, f); err == nil && !used {
						w.restartFollower(f)
					}
				})
			}
		}
		lists.Wait()
	}
}
