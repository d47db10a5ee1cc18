package etcd

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/etcd/internal/cluster"
	"github.com/fencekit/fencekit/fence/etcd/internal/session"
	"github.com/fencekit/fencekit/fence/etcd/internal/watch"
	lifecycle "github.com/fencekit/fencekit/fence/internal/session"
)

// Locker is a fence.Locker on etcd. It is safe for concurrent use.
type Locker struct {
	cluster  *cluster.Cluster
	sessions *session.Manager
	watcher  *watch.Watcher
	label    string
	sender   *sender
	closing  *lifecycle.Closing

	mu    sync.Mutex
	lines map[string]*line
}

var (
	_ fence.Locker      = (*Locker)(nil)
	_ fence.EpochKeeper = (*Locker)(nil)
	_ fence.Elector     = (*Locker)(nil)
)

// New returns a Locker that uses client, which it never closes. It makes no request. A nil cfg means the
// defaults; cfg is copied. It fails with fence.ErrInvalid for a bad cfg, and for a client that is closed, has a
// malformed endpoint, or is wrapped by etcd's namespace package.
func New(client *clientv3.Client, cfg *Config) (*Locker, error) {
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := cluster.ValidateClient(client); err != nil {
		return nil, err
	}
	l := &Locker{label: c.Label, closing: lifecycle.NewClosing(), lines: map[string]*line{}}
	l.cluster = cluster.New(client, cluster.Space{Prefix: c.Prefix, Mutex: c.MutexKeys}, c.requestTimeout, c.Logger)
	l.sessions = session.NewManager(l.cluster, c.TTL, l.sessionEnded)
	l.watcher = watch.New(l.cluster, c.pollInterval)
	l.sender = &sender{locker: l, stuckAfter: 20 * time.Millisecond, most: maxKeys}
	return l, nil
}

// TTL is Config.TTL. etcd may grant more.
func (l *Locker) TTL() time.Duration { return l.sessions.TTL }

// Close ends all leases with fence.LossClosed, revokes the session's lease in etcd, which deletes all lock keys,
// and stops everything in the background. Later and waiting calls of Acquire and TryAcquire return fence.ErrClosed.
//
// If etcd can't be reached, Close returns a *fence.UnavailableError when ctx ends, or when the lease must have
// expired; everything is closed nevertheless. If ctx has ended already, as after signal.NotifyContext, Close takes
// up to the time of one request. A second call waits for the first, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	return l.closing.Close(ctx, l.cluster.RequestTimeout, "etcd: close", func(ctx context.Context) error {
		defer l.sessions.CloseStream()
		defer l.cluster.Tasks.Stop()
		return l.sessions.Close(ctx)
	})
}

func (l *Locker) isClosed() bool { return l.closing.IsClosed() }

// Check reports whether etcd would grant a lock now, for start-up and readiness probes. One request, which writes
// nothing, shows that a majority answers, that there is space, that the client's user has the rights (with
// Config.MutexKeys not those to lock keys), and that etcd has not gone back. The errors are those of Acquire.
//
// The first Check or acquisition of a Locker also puts a key under <prefix>/void/, reads it back and deletes it. It
// fails, with the Reason fence.Imitated, if the server only imitates etcd, as kine does.
//
// Check also fails, with the Reason fence.Proxied, if a proxy such as etcd's grpc-proxy answers. Acquire works
// there, but see the package comment.
func (l *Locker) Check(ctx context.Context) error {
	if l.isClosed() {
		return cluster.ErrLockerClosed
	}
	return l.cluster.Ask(ctx, "check", func(ctx context.Context) error {
		if err := l.cluster.Probe(ctx); err != nil {
			return err
		}
		return l.watcher.CheckMember(ctx)
	})
}

// Epoch implements fence.EpochKeeper: it is the one that etcd last showed to Check, an acquisition or a renewal.
func (l *Locker) Epoch() int64 { return l.cluster.Sending().Epoch.Number }

// EpochRemedy implements fence.EpochKeeper.
func (l *Locker) EpochRemedy(from, to int64) string {
	if to < from {
		return "fencectl epoch bump --reason TEXT --trust databases"
	}
	return "raise the epoch: fencectl epoch bump --reason TEXT"
}
