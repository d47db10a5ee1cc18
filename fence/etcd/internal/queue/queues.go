package queue

import (
	"sync"
	"time"

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
	closed   chan struct{}
	sender   *sender
	cleaner  *cleaner

	mu    sync.Mutex
	lines map[string]*line // by resource
}

// New returns Queues in which nothing is acquired yet. The holder of every grant begins
// with label.
func New(c *cluster.Cluster, sessions *session.Manager, watcher *watch.Watcher, label string) *Queues {
	q := &Queues{
		cluster: c, sessions: sessions, watcher: watcher, label: label,
		closed: make(chan struct{}), lines: map[string]*line{},
	}
	q.sender, q.cleaner = &sender{queues: q, stuckAfter: 20 * time.Millisecond, room: maxKeys}, &cleaner{queues: q}
	return q
}

// Close makes Acquire return fence.ErrClosed, also calls that wait for their turn in this
// process. It is called once.
func (q *Queues) Close() { close(q.closed) }

// Closed is closed by Close.
func (q *Queues) Closed() <-chan struct{} { return q.closed }

func (q *Queues) isClosed() bool {
	select {
	case <-q.closed:
		return true
	default:
		return false
	}
}

// Current returns the position of this process that is ahead of its others in the queue of
// the resource; nil if it has none.
func (q *Queues) Current(resource string) *Position {
	q.mu.Lock()
	l := q.lines[resource]
	q.mu.Unlock()
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ahead()
}
