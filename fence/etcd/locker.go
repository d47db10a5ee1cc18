package etcd

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/keys"
	"github.com/fencekit/fencekit/fence/etcd/internal/queue"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
)

// Locker is a fence.Locker on etcd. Its methods may be called from several
// goroutines. See the package comment for what it does.
type Locker struct {
	cluster  *cluster.Cluster
	sessions *session.Manager
	watcher  *watch.Watcher
	queues   *queue.Queues

	closed   atomic.Bool
	finished chan struct{} // closed when Close has done all
}

var _ fence.Locker = (*Locker)(nil)

// NewLocker returns a Locker that uses the client, which it never closes. It makes no
// request: the first Acquire does. A nil cfg means the defaults; cfg is copied. A bad cfg
// is rejected with fence.ErrInvalid, and so is a client that is closed, has a malformed
// endpoint, or is wrapped by etcd's namespace package.
func NewLocker(client *clientv3.Client, cfg *Config) (*Locker, error) {
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := validateClient(client); err != nil {
		return nil, err
	}
	l := &Locker{finished: make(chan struct{})}
	l.cluster = cluster.New(client, keys.Space{Prefix: c.Prefix, Mutex: c.MutexKeys}, c.RequestTimeout, c.Logger)
	l.sessions = session.NewManager(l.cluster, session.Config{TTL: c.TTL, RequestTimeout: c.RequestTimeout})
	l.watcher = watch.New(l.cluster, c.pollInterval)
	l.queues = queue.New(l.cluster, l.sessions, l.watcher, c.Label)
	return l, nil
}

// badClient is the error of NewLocker for a client.
func badClient(reason string, args ...any) error {
	return fmt.Errorf("%w: the etcd client %s", fence.ErrInvalid, fmt.Sprintf(reason, args...))
}

func validateClient(client *clientv3.Client) error {
	switch {
	case client == nil:
		return badClient("is nil")
	case client.ActiveConnection() == nil:
		return badClient("has no connection of its own; make it with clientv3.New")
	case cluster.ClientClosed(client):
		return badClient("is closed")
	}
	for _, endpoint := range client.Endpoints() {
		switch {
		case endpoint == "":
			return badClient("has an empty endpoint; give the address of a member, as http://127.0.0.1:2379")
		case strings.Contains(endpoint, ","):
			return badClient("has the endpoint %q: give each member's as a string of its own", endpoint)
		case strings.ContainsFunc(endpoint, unicode.IsSpace):
			return badClient("has the endpoint %q with a space in it", endpoint)
		}
	}
	// The watch doesn't use client.Watcher, so it would watch other keys than a namespaced
	// KV writes.
	plainKV, plainWatcher := clientv3.NewKVFromKVClient(nil, nil), clientv3.NewWatchFromWatchClient(nil, nil)
	if reflect.TypeOf(client.KV) != reflect.TypeOf(plainKV) || reflect.TypeOf(client.Watcher) != reflect.TypeOf(plainWatcher) {
		return badClient("has its KV or Watcher replaced, as by the namespace package; give a plain client and set Config.Prefix instead")
	}
	return nil
}

// Acquire implements fence.Locker. Its errors: the one of ctx, and its cause; it is a
// *fence.UnavailableError too if ctx's deadline passed while a request to etcd was
// unanswered. A *fence.InvalidGrantError for a bad name; fence.ErrClosed; else a
// *fence.UnavailableError, whose Reason says what has to be fixed. Each request to etcd is
// bounded by Config.RequestTimeout, also if ctx has no deadline.
//
// When ctx ends while another acquisition is ahead in the queue, the error is a
// *fence.LockedError (fence.ErrLocked) as well as that of ctx, and names the holder if it
// is known. TryAcquire's error for a taken resource is not ctx's: test for that first to
// distinguish the two.
func (l *Locker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	return asLease(l.queues.Acquire(ctx, resource))
}

// TryAcquire implements fence.Locker. It writes nothing when the resource is
// taken. Its other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, resource string) (fence.Lease, error) {
	return asLease(l.queues.TryAcquire(ctx, resource))
}

// TryAcquireAll implements fence.Locker, for up to 100 resources at a time: of more it
// acquires the first 100, or as many as etcd takes in a request. Each is named once. It takes
// one request to etcd, another if one of the resources is taken, and rarely more; with
// Config.MutexKeys it acquires one resource at a time. The grants of one call have equal tokens and different holders. Its errors are
// those of Acquire.
func (l *Locker) TryAcquireAll(ctx context.Context, resources ...string) ([]fence.Lease, error) {
	held, err := l.queues.TryAcquireAll(ctx, resources)
	if err != nil {
		return nil, err
	}
	leases := make([]fence.Lease, len(held))
	for i, le := range held {
		leases[i] = le
	}
	return leases, nil
}

func asLease(held queue.Lease, err error) (fence.Lease, error) {
	if err != nil {
		return nil, err
	}
	return held, nil
}

// GrantedTTL is the time to live that etcd granted for what is held now; 0 if
// there is no session. It can be longer than the one asked for.
func (l *Locker) GrantedTTL() time.Duration {
	s := l.sessions.Current()
	if s == nil || s.Remaining() == 0 {
		return 0
	}
	return s.GrantedTTL()
}
