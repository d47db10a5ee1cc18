package queue

import (
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Queues acquires resources for one Locker. Its methods may be called from several
// goroutines.
type Queues struct {
	cluster  *cluster.Cluster
	sessions *session.Manager
	watcher  *watch.Watcher
	label    string // begins the holder of every grant
	local    *localQueue
	clearing chan struct{} // has room while clearAway may send another request
}

// New returns Queues in which nothing is acquired yet. The holder of every grant begins
// with label.
func New(c *cluster.Cluster, sessions *session.Manager, watcher *watch.Watcher, label string) *Queues {
	return &Queues{
		cluster: c, sessions: sessions, watcher: watcher, label: label,
		local: newLocalQueue(), clearing: make(chan struct{}, maxClearing),
	}
}

// Close makes Acquire return fence.ErrClosed, also calls that wait for their turn in this
// process. It is called once.
func (q *Queues) Close() { close(q.local.closed) }

// Closed is closed by Close.
func (q *Queues) Closed() <-chan struct{} { return q.local.closed }

func (q *Queues) isClosed() bool {
	select {
	case <-q.local.closed:
		return true
	default:
		return false
	}
}

// Current returns this process's position in the queue of the resource; nil if it has
// none.
func (q *Queues) Current(resource string) *Position { return q.local.current(resource) }
