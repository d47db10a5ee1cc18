package etcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watcher watches all queues that are followed, over one gRPC stream. It speaks
// the raw protocol because the client's Watch keeps goroutines for each watch;
// here there are a few for the stream, whatever is held.
type watcher struct {
	remote  pb.WatchClient
	client  *clientv3.Client
	cfg     *Config
	probed  string                        // key that probes watch: every locker may read it
	relist  func(*followed)               // called when a watch from now on is in place
	refused func(*watchStream, *followed) // called when etcd refuses to watch a queue
	broken  func()                        // called when the stream has ended by itself

	wake     chan struct{} // holds one signal that there is something to send
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

// order is something to send about the watch of an id.
type order struct {
	kind orderKind
	id   int64
}

type orderKind int

const (
	createWatch orderKind = iota
	cancelWatch
	probe // see watchStream.check
)

func newWatcher(l *Locker) *watcher {
	return &watcher{
		remote: pb.NewWatchClient(l.client.ActiveConnection()), client: l.client, cfg: &l.cfg, probed: l.keys.epoch(),
		relist: l.relist, refused: l.watchRefused, broken: l.recheck,
		wake: make(chan struct{}, 1), orphaned: make(chan struct{}),
		ids: map[*followed]int64{}, watches: map[int64]*watch{},
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
	w.send(order{createWatch, w.lastID})
}

// remove stops watching f, and reports whether it was watched.
func (w *watcher) remove(f *followed) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removeLocked(f)
}

func (w *watcher) removeLocked(f *followed) bool {
	id, ok := w.ids[f]
	if !ok {
		return false
	}
	if w.watches[id].asked {
		w.send(order{cancelWatch, id})
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
			err := w.openStream(ctx)
			if ctx.Err() != nil {
				return
			}
			if clientClosed(w.client) {
				w.cfg.Logger.Error(errClientClosed.Error())
				close(w.orphaned)
				return
			}
			w.broken()
			w.cfg.Logger.Info("the watch on the lock queues was broken; it is set up again", "error", err)
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
