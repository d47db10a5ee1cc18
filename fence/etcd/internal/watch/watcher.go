package watch

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fencekit/fencekit/fence/etcd/internal/background"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
)

// Watcher watches all queues that are followed, over one gRPC stream. It uses the raw
// protocol because the client's Watch keeps goroutines for each watch; here the stream has
// a few, however many queues it watches. Its methods may be called from several goroutines.
type Watcher struct {
	cluster      *cluster.Cluster
	remote       pb.WatchClient
	pollInterval time.Duration

	wake         chan struct{} // holds one signal that there is something to send
	clientClosed chan struct{} // closed when run found the client closed

	mu      sync.Mutex
	lastID  int64
	watches map[int64]*Follower // by Follower.id
	outbox  []order
}

// order is a request to send for the watch with this id.
type order struct {
	kind orderKind
	id   int64
}

type orderKind int

const (
	createWatch orderKind = iota
	cancelWatch
	probe // see stream.check
)

// New returns a Watcher that follows nothing yet; the cluster's tasks run it. The
// watch is probed, and Poll reads, every pollInterval.
func New(c *cluster.Cluster, pollInterval time.Duration) *Watcher {
	w := &Watcher{
		cluster: c, remote: pb.NewWatchClient(c.Client.ActiveConnection()), pollInterval: pollInterval,
		wake: make(chan struct{}, 1), clientClosed: make(chan struct{}),
		watches: map[int64]*Follower{},
	}
	c.Tasks.Start(w.run)
	return w
}

// ClientClosed is closed when the etcd client is found closed: nothing is watched any more.
func (w *Watcher) ClientClosed() <-chan struct{} { return w.clientClosed }

// Add watches the queue of f, from f.resume() on. It doesn't wait for etcd.
func (w *Watcher) Add(f *Follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.addLocked(f)
}

func (w *Watcher) addLocked(f *Follower) {
	w.lastID++
	f.id, f.asked, f.fromNow = w.lastID, false, false
	f.removed.Store(false)
	w.watches[f.id] = f
	w.send(order{createWatch, f.id})
}

// Remove stops watching f, and reports whether it was watched.
func (w *Watcher) Remove(f *Follower) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removeLocked(f)
}

func (w *Watcher) removeLocked(f *Follower) bool {
	if f.id == 0 {
		return false
	}
	if f.asked {
		w.send(order{cancelWatch, f.id})
	}
	delete(w.watches, f.id)
	f.id = 0
	f.removed.Store(true)
	return true
}

// restartFollower forgets what f's watch has shown and watches from now on.
func (w *Watcher) restartFollower(f *Follower) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.removeLocked(f) {
		f.missed()
		w.addLocked(f)
	}
}

// rewatch replaces the watch with this id by a new one of the same queue.
func (w *Watcher) rewatch(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.watches[id]; f != nil {
		delete(w.watches, id)
		w.addLocked(f)
	}
}

// send queues o. Callers hold mu.
func (w *Watcher) send(o order) {
	w.outbox = append(w.outbox, o)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run keeps a stream open while there is something to watch, until ctx ends or
// the client is closed.
func (w *Watcher) run(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		if !w.Idle() {
			began := time.Now()
			err := w.openStream(ctx)
			if ctx.Err() != nil {
				return
			}
			if w.cluster.Closed() {
				w.cluster.Logger.Error(cluster.ErrClientClosed.Error())
				close(w.clientClosed)
				return
			}
			w.cluster.Recheck()
			w.cluster.Logger.Info("the watch on the lock queues was broken; it is set up again", "error", err)
			if time.Since(began) > time.Minute {
				failures = 0
			}
			background.Pause(ctx, failures, nil)
			failures++
			continue
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// Idle reports whether nothing is watched.
func (w *Watcher) Idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watches) == 0
}
