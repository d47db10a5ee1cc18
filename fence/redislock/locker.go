package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
)

// Locker is a fence.Locker on Redis. It is safe for concurrent use.
type Locker struct {
	client  redis.UniversalClient
	cfg     Config
	process string
	closing *session.Closing
	tasks   *session.Tasks
	watched chan struct{} // holds a signal that there is somebody to tell of contention

	mu     sync.Mutex
	leases map[string][]*lease // those that are not over, and those to be given back, by resource in order
}

var (
	_ fence.Locker = (*Locker)(nil)
	_ fence.Raiser = (*Locker)(nil)
)

// New returns a Locker on client, which it never closes. It makes no request. A nil cfg means the defaults; cfg is
// copied. A nil client and a bad cfg are fence.ErrInvalid.
func New(client redis.UniversalClient, cfg *Config) (*Locker, error) {
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("%w: redislock.New needs a client", fence.ErrInvalid)
	}
	l := &Locker{
		client: client, cfg: c, process: newHolder(c.Label), closing: session.NewClosing(), tasks: session.NewTasks(),
		watched: make(chan struct{}, 1), leases: map[string][]*lease{},
	}
	l.tasks.Start(l.look)
	return l, nil
}

func newHolder(label string) string { return fmt.Sprintf("%s-%016x", label, rand.Uint64()) }

var errClosed = fmt.Errorf("%w: locker is closed", fence.ErrClosed)

// Check reports whether Redis runs scripts now, for start-up and readiness probes.
func (l *Locker) Check(ctx context.Context) error {
	if l.closing.IsClosed() {
		return errClosed
	}
	if _, err := l.eval(ctx, raiseScript, []string{l.cfg.Prefix + ":check"}, "0"); err != nil {
		return unavailable("check", err)
	}
	return nil
}

// Raise implements fence.Raiser: the resource's counter goes on above that token. It fails with fence.ErrInvalid if
// above has a higher epoch than Config.Epoch.
func (l *Locker) Raise(ctx context.Context, above fence.Grant) error {
	if above.Epoch > l.cfg.Epoch {
		return fmt.Errorf("%w: the fence has epoch %d: raise redislock.Config.Epoch from %d in every process", fence.ErrInvalid, above.Epoch, l.cfg.Epoch)
	}
	if err := above.Validate(); err != nil {
		return err
	}
	if above.Epoch < l.cfg.Epoch {
		return nil
	}
	_, token, _ := l.keys(above.Resource)
	if _, err := l.eval(ctx, raiseScript, []string{token}, above.Token.String()); err != nil {
		return unavailable("raise "+above.Resource, err)
	}
	return nil
}

// Close ends all leases with fence.LossClosed, deletes their keys, and stops everything in the background. Later and
// waiting calls return fence.ErrClosed.
//
// If Redis can't be reached, Close returns a *fence.UnavailableError when ctx ends, or when the locks must have
// expired; everything is closed nevertheless. If ctx has ended already, Close takes up to the time of one request. A
// second call waits for the first, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	return l.closing.Close(ctx, l.cfg.requestTimeout, "redislock: close", func(ctx context.Context) error {
		defer l.tasks.Stop()
		l.mu.Lock()
		leases := slices.Concat(slices.Collect(maps.Values(l.leases))...)
		l.mu.Unlock()
		for _, p := range leases {
			p.finish(p.loss(fence.LossClosed))
		}
		var failed error
		for _, p := range leases {
			select {
			case <-p.settled:
				failed = cmp.Or(failed, p.failed)
			case <-ctx.Done():
				failed = ctx.Err()
			}
		}
		if failed != nil {
			return unavailable("close", failed)
		}
		return nil
	})
}

// look tells leases that another process waits.
func (l *Locker) look(ctx context.Context) {
	for {
		select {
		case <-l.watched:
		case <-ctx.Done():
			return
		}
		for leases := l.watching(); len(leases) > 0; leases = l.watching() {
			contended := l.contended(ctx, leases)
			l.mu.Lock()
			for _, p := range contended {
				p.Contend()
			}
			l.mu.Unlock()
			select {
			case <-time.After(l.cfg.PollInterval):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (l *Locker) watching() (leases []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.leases {
		for _, p := range of {
			if p.Watched() {
				leases = append(leases, p)
			}
		}
	}
	return leases
}

// Acquire implements fence.Locker, but for the order of arrival: there is none. It returns ctx's error and cause; a
// *fence.InvalidGrantError for a bad name; fence.ErrClosed; else a *fence.UnavailableError. If ctx ends behind
// another holder, the error is also a *fence.LockedError.
func (l *Locker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	return l.acquire(ctx, resource, true)
}

// TryAcquire implements fence.Locker. Other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, resource string) (fence.Lease, error) {
	return l.acquire(ctx, resource, false)
}

// TryAcquireAll implements fence.Locker, with a request for each resource: in a cluster they have no server in
// common.
func (l *Locker) TryAcquireAll(ctx context.Context, resources ...string) ([]fence.Lease, error) {
	for _, r := range resources {
		if err := fence.ValidateResource(r); err != nil {
			return nil, err
		}
	}
	var held []fence.Lease
	for _, r := range resources {
		le, err := l.TryAcquire(ctx, r)
		if errors.Is(err, fence.ErrLocked) && ctx.Err() == nil {
			break
		}
		if err != nil {
			for _, le := range slices.Backward(held) {
				go le.Release(context.WithoutCancel(ctx))
			}
			return nil, err
		}
		held = append(held, le)
	}
	return held, nil
}

func (l *Locker) acquire(ctx context.Context, resource string, wait bool) (fence.Lease, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		p, err := l.newLease(resource, wait)
		if err != nil {
			return nil, err
		}
		asked := make(chan error, 1)
		l.tasks.Start(func(tasks context.Context) { asked <- p.ask(tasks) })
		select {
		case err = <-asked:
		case <-p.Done():
			err = p.Err()
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err == nil && p.Remaining() > 0 {
			return p, nil
		}
		p.finish(errAbandoned)
		switch {
		case l.closing.IsClosed():
			return nil, errClosed
		case ctx.Err() != nil:
			return nil, p.givenUp(session.Ended(ctx, "redislock: acquire "+resource))
		case err != nil && !errors.Is(err, fence.ErrLeaseLost): // else the answer came too late
			return nil, err
		}
	}
	return nil, session.Ended(ctx, "redislock: acquire "+resource)
}

var errAbandoned = errors.New("redislock: given up")
