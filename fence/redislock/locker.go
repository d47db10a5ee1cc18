package redislock

import (
	"context"
	"errors"
	"fmt"
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
	client   redis.UniversalClient
	cfg      Config
	process  string
	sessions session.Manager[string]
	tasks    *session.Tasks
	watched  chan struct{} // holds a signal that there is somebody to tell of contention

	begin    sync.Once
	closed   chan struct{}
	finished chan struct{}

	mu     sync.Mutex
	leases map[*lease]struct{} // those that are not over, and those to be given back
	freed  chan struct{}       // closed when this process has given a lock back
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
		client: client, cfg: c, process: newHolder(c.Label), tasks: session.NewTasks(), watched: make(chan struct{}, 1),
		closed: make(chan struct{}), finished: make(chan struct{}), leases: map[*lease]struct{}{}, freed: make(chan struct{}),
	}
	l.sessions = session.Manager[string]{
		Service: service{l}, TTL: c.TTL, RequestTimeout: c.requestTimeout, OnEnd: l.sessionEnded,
		Tasks: l.tasks, Logger: c.Logger, ErrClosed: errClosed,
	}
	return l, nil
}

func newHolder(label string) string { return fmt.Sprintf("%s-%016x", label, rand.Uint64()) }

var (
	errClosed = fmt.Errorf("%w: locker is closed", fence.ErrClosed)
	errOver   = errors.New("redislock: the lease's time was over before the answer came")
)

// Check reports whether Redis runs scripts now, for start-up and readiness probes.
func (l *Locker) Check(ctx context.Context) error {
	if l.isClosed() {
		return errClosed
	}
	if _, err := l.eval(ctx, raiseScript, []string{l.cfg.Prefix + ":{}:check"}, "0"); err != nil {
		return unavailable("check", err)
	}
	return nil
}

func (l *Locker) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
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
	if ctx.Err() != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.cfg.requestTimeout)
		defer cancel()
		ctx = last
	}
	l.mu.Lock()
	again := l.isClosed()
	if !again {
		close(l.closed)
	}
	l.mu.Unlock()
	if again {
		select {
		case <-l.finished:
			return nil
		case <-ctx.Done():
			return session.Ended(ctx, "redislock: close")
		}
	}
	defer close(l.finished)
	defer l.tasks.Stop()
	if err := l.sessions.Close(ctx); err != nil {
		return unavailable("close", err)
	}
	// What is left waits for an answer, and then gives back what it got.
	l.forgetExpired()
	ctx, cancel := context.WithTimeout(ctx, l.cfg.requestTimeout+l.cfg.TTL)
	defer cancel()
	for _, p := range l.of(func(*lease) bool { return true }) {
		select {
		case <-p.settled:
		case <-ctx.Done():
			return unavailable("close", errOver)
		}
	}
	return nil
}

// service is the session.Service of a Locker. A session is nothing in Redis: it stands for the locks under it.
type service struct{ *Locker }

func (l service) Grant(context.Context, time.Duration) (string, time.Duration, error) {
	l.begin.Do(func() { l.tasks.Start(l.look) })
	l.forgetExpired()
	return newHolder(l.cfg.Label), l.cfg.TTL, nil
}

// KeepAlive renews all locks, also those that Redis hasn't yet said to have granted: the deadline is theirs too.
func (l service) KeepAlive(ctx context.Context, id string) (time.Duration, error) {
	var owned []*lease
	leases := l.of(func(p *lease) bool {
		of := p.Session.ID == id && p.Over() == nil
		if of && p.owns {
			owned = append(owned, p)
		}
		return of
	})
	renewed, err := l.evalEach(ctx, leases, renewScript, l.cfg.TTL.Milliseconds())
	if err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range leases {
		if renewed[i] == 0 && slices.Contains(owned, p) {
			p.finish(&fence.LeaseLostError{Grant: p.grant, Reason: fence.LossExpired})
		}
	}
	return l.cfg.TTL, nil
}

// Revoke gives back what the session's leases have left, but for those that give it back when their answer comes.
func (l service) Revoke(ctx context.Context, id string) (forGood bool, err error) {
	leases := l.of(func(p *lease) bool { return p.Session.ID == id && p.Over() != nil && !p.asking })
	if _, err = l.evalEach(ctx, leases, releaseScript); err == nil {
		l.forget(leases)
	}
	return false, err
}

// forgetExpired forgets what Redis could not be told to delete.
func (l *Locker) forgetExpired() {
	l.forget(l.of(func(p *lease) bool { return p.Over() != nil && !p.asking && time.Since(p.ended) > l.cfg.TTL }))
}

func (l *Locker) forget(leases []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range leases {
		p.gone()
	}
}

func (l *Locker) of(which func(*lease) bool) (leases []*lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.leases {
		if which(p) {
			leases = append(leases, p)
		}
	}
	return leases
}

func (l *Locker) sessionEnded(s *session.Session[string], reason fence.LossReason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.leases {
		if p.Session == s {
			p.finish(p.loss(reason))
		}
	}
}

// look tells leases that another process waits.
func (l *Locker) look(ctx context.Context) {
	for {
		select {
		case <-l.watched:
		case <-ctx.Done():
			return
		}
		for {
			leases := l.of(func(p *lease) bool { return p.Watched() })
			if len(leases) == 0 {
				break
			}
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
	op := "acquire " + resource
	for {
		switch {
		case l.isClosed():
			return nil, errClosed
		case ctx.Err() != nil:
			return nil, session.Ended(ctx, "redislock: "+op)
		}
		s, err := l.sessions.Live(ctx)
		if err != nil {
			return nil, err
		}
		p := l.newLease(s, resource)
		asked := make(chan error, 1)
		l.tasks.Start(func(tasks context.Context) { asked <- p.ask(tasks, wait) })
		select {
		case err = <-asked:
		case <-p.Done():
			err = p.Err()
		case <-ctx.Done():
			err = session.Ended(ctx, "redislock: "+op)
		}
		if err == nil && s.Remaining() > 0 {
			return p, nil
		}
		locked := p.giveUp()
		switch {
		case l.isClosed():
			return nil, errClosed
		case ctx.Err() != nil && locked != nil: // err may be of the answer that came meanwhile
			return nil, fmt.Errorf("%w: %w", locked, session.Ended(ctx, "redislock: "+op))
		case err == nil || errors.Is(err, fence.ErrLeaseLost): // the session ended: with another one
			continue
		}
		return nil, err
	}
}
