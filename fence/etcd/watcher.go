package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// watcher watches all queues that are followed, over one gRPC stream. It speaks
// the raw protocol because the client's Watch keeps goroutines for each watch;
// here there are three for the stream, whatever is held.
type watcher struct {
	remote pb.WatchClient
	logger *slog.Logger
	relist func(*followed) // called when a watch from now on is in place
	broken func()          // called when the stream has ended by itself
	wake   chan struct{}   // holds one signal that there is something to send

	client   *clientv3.Client
	orphaned chan struct{} // closed when run found the client closed

	mu      sync.Mutex
	lastID  int64
	ids     map[*followed]int64
	watches map[int64]*watch
	outbox  []order
}

// watch is one watch on the stream.
type watch struct {
	followed *followed
	asked    bool // on the present stream
	fromNow  bool // without a revision to start from
}

// order is something to send: the request for a watch, or for its end.
type order struct {
	id     int64
	cancel bool
}

func newWatcher(client *clientv3.Client, logger *slog.Logger, relist func(*followed), broken func()) *watcher {
	return &watcher{
		remote: pb.NewWatchClient(client.ActiveConnection()), logger: logger, relist: relist, broken: broken,
		wake: make(chan struct{}, 1), ids: map[*followed]int64{}, watches: map[int64]*watch{},
		client: client, orphaned: make(chan struct{}),
	}
}

// add watches the queue of f, from f.resume() on. It doesn't wait for etcd.
func (w *watcher) add(f *followed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(f)
}

func (w *watcher) addLocked(f *followed) {
	w.lastID++
	w.ids[f] = w.lastID
	w.watches[w.lastID] = &watch{followed: f}
	w.send(order{id: w.lastID})
}

// remove stops watching f; nothing happens if it isn't watched.
func (w *watcher) remove(f *followed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(f)
}

// removeLocked reports whether f was watched.
func (w *watcher) removeLocked(f *followed) bool {
	id, ok := w.ids[f]
	if !ok {
		return false
	}
	if w.watches[id].asked {
		w.send(order{id: id, cancel: true})
	}
	delete(w.ids, f)
	delete(w.watches, id)
	return true
}

// anew forgets what f's watch has shown and watches from now on.
func (w *watcher) anew(f *followed) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removeLocked(f) {
		f.missed()
		w.addLocked(f)
	}
}

// again replaces the watch of an id by a new one of the same queue.
func (w *watcher) again(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.watches[id]; old != nil {
		delete(w.watches, id)
		w.addLocked(old.followed)
	}
}

// send queues o. Callers hold mu.
func (w *watcher) send(o order) {
	w.outbox = append(w.outbox, o)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run keeps a stream open while there is something to watch, until ctx ends or
// the client is closed.
func (w *watcher) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		if !w.idle() {
			began := time.Now()
			err := w.stream(ctx)
			if ctx.Err() != nil {
				return
			}
			if clientClosed(w.client) {
				w.logger.Error(errClientClosed.Error())
				close(w.orphaned)
				return
			}
			w.broken()
			w.logger.Info("the watch on the lock queues was broken; it is set up again", "error", err)
			if time.Since(began) > time.Minute {
				failures = 0
			}
			pause(ctx, failures, nil)
			failures++
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

func (w *watcher) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches) == 0
}

// stream opens one stream, watches everything over it, and returns why it ended.
func (w *watcher) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	stream, err := w.remote.Watch(ctx, grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		cancel()
		return err
	}
	w.restart()
	received := make(chan error, 1)
	go func() {
		received <- w.receive(stream)
		cancel() // so that a Send that blocks ends too
	}()
	sendErr := w.sendAll(ctx, stream)
	cancel()
	if err := <-received; err != nil {
		return err
	}
	return sendErr
}

// restart queues the request for every watch: a new stream knows none.
func (w *watcher) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outbox = nil
	for id, watch := range w.watches {
		watch.asked = false
		w.send(order{id: id})
	}
}

func (w *watcher) sendAll(ctx context.Context, stream pb.Watch_WatchClient) error {
	for {
		w.mu.Lock()
		orders := w.outbox
		w.outbox = nil
		w.mu.Unlock()
		for _, o := range orders {
			req := w.request(o)
			if req == nil {
				continue
			}
			if err := stream.Send(req); err != nil {
				return err
			}
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// request is what to send for o; nil if the watch was removed before it was
// asked for.
func (w *watcher) request(o order) *pb.WatchRequest {
	if o.cancel {
		return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{
			CancelRequest: &pb.WatchCancelRequest{WatchId: o.id},
		}}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.watches[o.id]
	if watch == nil {
		return nil
	}
	watch.asked = true
	f := watch.followed
	start := f.resume()
	watch.fromNow = start == 0
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{
			WatchId:       o.id,
			Key:           []byte(f.queue),
			RangeEnd:      []byte(clientv3.GetPrefixRangeEnd(f.queue)),
			StartRevision: start,
		},
	}}
}

func (w *watcher) receive(stream pb.Watch_WatchClient) error {
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := w.dispatch(resp); err != nil {
			return err
		}
	}
}

// dispatch passes a response on to who follows the queue. Its error is for the
// stream as a whole.
func (w *watcher) dispatch(resp *pb.WatchResponse) error {
	if resp.Created && resp.Canceled {
		return fmt.Errorf("etcd: watch refused: %s", resp.CancelReason)
	}
	w.mu.Lock()
	watch := w.watches[resp.WatchId]
	if watch == nil {
		w.mu.Unlock()
		return nil // removed meanwhile
	}
	f, fromNow := watch.followed, watch.fromNow
	w.mu.Unlock()
	switch {
	case resp.CompactRevision != 0:
		f.missed()
		w.again(resp.WatchId)
	case resp.Canceled:
		return fmt.Errorf("etcd: watch cancelled: %s", resp.CancelReason)
	case resp.Created:
		if fromNow { // what was listed before may be older than the watch
			w.relist(f)
		}
	default:
		f.events(resp.Events)
	}
	return nil
}
