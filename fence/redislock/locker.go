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
	"strings"
	"sync"
	"sync/atomic"
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
	checked atomic.Bool
	watched chan struct{} // holds a signal that there is somebody to tell of contention

	mu     sync.Mutex
	leases map[string][]*lease // those that are not over, and those to be given back, by resource in order
}

var (
	_ fence.Locker      = (*Locker)(nil)
	_ fence.Raiser      = (*Locker)(nil)
	_ fence.EpochKeeper = (*Locker)(nil)
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

// Check reports whether Redis grants locks now, for start-up and readiness probes: it acquires and releases one of its
// own. In a cluster that asks one server. The first that succeeds warns of a maxmemory-policy that evicts.
func (l *Locker) Check(ctx context.Context) error {
	if l.closing.IsClosed() {
		return errClosed
	}
	p := &lease{locker: l, grant: fence.Grant{Resource: "\n" + newHolder("check"), Holder: "check"}} // no resource has that name
	lock, token, _ := l.keys(p.grant.Resource)
	_, err := l.eval(ctx, acquireScript, []string{lock, token, token}, l.process, p.grant.Holder, l.cfg.TTL.Milliseconds(), 0)
	if err == nil {
		_, err = p.evalOwn(ctx, releaseScript)
	}
	if err != nil {
		return unavailable("check", err)
	}
	if !l.checked.Swap(true) {
		l.warnOfEviction(ctx)
	}
	return nil
}

func (l *Locker) warnOfEviction(ctx context.Context) {
	info, err := within(ctx, l, func(ctx context.Context) (string, error) { return l.client.Info(ctx, "memory").Result() })
	if _, policy, ok := strings.Cut(info, "maxmemory_policy:"); err == nil && ok && !strings.HasPrefix(policy, "noeviction") {
		policy, _, _ = strings.Cut(policy, "\r")
		l.cfg.Logger.WarnContext(ctx, "redislock: when its memory is used up Redis evicts locks and counters of tokens: two processes then own a resource, "+
			"the fence rejects one of them, and that call has to run again. Give locks a Redis with maxmemory-policy noeviction", "maxmemory-policy", policy)
	}
}

// Epoch implements fence.EpochKeeper.
func (l *Locker) Epoch() int64 { return l.cfg.Epoch }

// EpochRemedy implements fence.EpochKeeper.
func (l *Locker) EpochRemedy(_, to int64) string {
	return fmt.Sprintf("set redislock.Config.Epoch to %d in every process", to)
}

// Raise implements fence.Raiser: the resource's counter goes on above that token. It fails with fence.ErrInvalid if
// above has a higher epoch than Config.Epoch.
func (l *Locker) Raise(ctx context.Context, above fence.Grant) error {
	if above.Epoch > l.cfg.Epoch {
		return fmt.Errorf("%w: the fence has epoch %d: %s", fence.ErrInvalid, above.Epoch, l.EpochRemedy(l.cfg.Epoch, above.Epoch))
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
			p.lose(fence.LossClosed)
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
