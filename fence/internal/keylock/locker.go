package keylock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/fence/internal/session"
	"github.com/fencekit/fencekit/internal/locks"
)

// Locker is a fence.Locker on a Service. It is safe for concurrent use.
type Locker struct {
	service Service
	cfg     Config
	process string
	closing *session.Closing
	tasks   *session.Tasks
	watched chan struct{} // holds a signal that there is somebody to tell of contention

	mu     sync.Mutex
	leases map[string][]*lease // those that are not over, and those to be given back, by resource in order
}

var (
	_ fence.Locker      = (*Locker)(nil)
	_ fence.Raiser      = (*Locker)(nil)
	_ fence.EpochKeeper = (*Locker)(nil)
	_ fence.Elector     = (*Locker)(nil)
	_ locks.Service     = (*Locker)(nil)
)

// New returns a Locker on service. It makes no request. A bad cfg is fence.ErrInvalid.
func New(service Service, cfg Config) (*Locker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	l := &Locker{
		service: service, cfg: cfg, process: session.NewHolder(cfg.Label), closing: session.NewClosing(), tasks: session.NewTasks(),
		watched: make(chan struct{}, 1), leases: map[string][]*lease{},
	}
	l.tasks.Start(l.look)
	return l, nil
}

var errClosed = fmt.Errorf("%w: locker is closed", fence.ErrClosed)

// Check reports whether the service grants locks now, for start-up and readiness probes: it acquires and releases one
// of its own.
func (l *Locker) Check(ctx context.Context) error {
	if l.closing.IsClosed() {
		return errClosed
	}
	r := Request{Resource: "\n" + session.NewHolder("check"), Process: l.process, Holder: "check", TTL: l.cfg.TTL} // no resource has that name
	_, err := within(ctx, l, func(ctx context.Context) (none struct{}, err error) { return none, l.service.Check(ctx, r) })
	return l.unavailable("check", err)
}

// TTL is how long a lock outlives its holder's last renewal.
func (l *Locker) TTL() time.Duration { return l.cfg.TTL }

// Epoch implements fence.EpochKeeper.
func (l *Locker) Epoch() int64 { return l.cfg.Epoch }

// EpochRemedy implements fence.EpochKeeper.
func (l *Locker) EpochRemedy(_, to int64) string {
	return fmt.Sprintf("set %s.Config.Epoch to %d in every process", l.cfg.Name, to)
}

// Raise implements fence.Raiser: the resource's tokens go on above that one. It fails with fence.ErrInvalid if
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
	_, err := within(ctx, l, func(ctx context.Context) (none struct{}, err error) {
		return none, l.service.Raise(ctx, above.Resource, above.Token)
	})
	return l.unavailable("raise "+above.Resource, err)
}

// Close ends all leases with fence.LossClosed, deletes their keys, and stops everything in the background. Later and
// waiting calls return fence.ErrClosed.
//
// If the service can't be reached, Close returns a *fence.UnavailableError when ctx ends, or when the locks must have
// expired; everything is closed nevertheless. If ctx has ended already, Close takes up to the time of one request. A
// second call waits for the first, and returns nil.
func (l *Locker) Close(ctx context.Context) error {
	return l.closing.Close(ctx, l.cfg.RequestTimeout, l.cfg.Name+": close", func(ctx context.Context) error {
		defer l.tasks.Stop()
		l.mu.Lock()
		leases := slices.Concat(slices.Collect(maps.Values(l.leases))...)
		for _, p := range leases {
			p.Lose(fence.LossClosed)
		}
		l.mu.Unlock()
		ctx, cancel := l.patience(ctx)
		defer cancel()
		var failed error
		for _, p := range leases {
			select {
			case <-p.settled:
				failed = cmp.Or(failed, p.failed)
			case <-ctx.Done():
				failed = ctx.Err()
			}
		}
		return l.unavailable("close", failed)
	})
}

// patience is how long a caller waits for a key to be given back: one that expires has done so.
func (l *Locker) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, l.cfg.TTL+l.cfg.RequestTimeout)
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

// Acquire implements fence.Locker, with order of arrival if the service is a Queue. It returns ctx's error and cause; a
// *fence.InvalidGrantError for a bad name; fence.ErrClosed; else a *fence.UnavailableError. If ctx ends behind
// another holder, the error is also a *fence.LockedError.
func (l *Locker) Acquire(ctx context.Context, resource string) (fence.Lease, error) {
	p, err := l.acquire(ctx, resource, true, "")
	if err != nil {
		return nil, err // an interface that is nil
	}
	return p, nil
}

// TryAcquire implements fence.Locker. Other errors are those of Acquire.
func (l *Locker) TryAcquire(ctx context.Context, resource string) (fence.Lease, error) {
	p, err := l.acquire(ctx, resource, false, "")
	if err != nil {
		return nil, err
	}
	return p, nil
}

// TryAcquireAll implements fence.Locker, with a request for each resource: their keys may be on different servers.
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

func (l *Locker) acquire(ctx context.Context, resource string, wait bool, value string) (*lease, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		p, err := l.newLease(resource, wait, value)
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
			return nil, p.givenUp(session.Ended(ctx, l.cfg.Name+": acquire "+resource))
		case err != nil && !errors.Is(err, fence.ErrLeaseLost): // else the answer came too late
			return nil, err
		}
	}
	return nil, session.Ended(ctx, l.cfg.Name+": acquire "+resource)
}

var errAbandoned = errors.New("given up")

// contended returns the leases for which another process waits.
func (l *Locker) contended(ctx context.Context, leases []*lease) (of []*lease) {
	requests := make([]Request, len(leases))
	for i, p := range leases {
		requests[i] = p.request()
	}
	waits, _ := within(ctx, l, func(ctx context.Context) ([]bool, error) { return l.service.Contended(ctx, requests) })
	for i, is := range waits {
		if is {
			of = append(of, leases[i])
		}
	}
	return of
}

func (l *Locker) unavailable(op string, err error) error {
	if err == nil {
		return nil
	}
	reason, err := l.service.Explain(err)
	return &fence.UnavailableError{Call: op, Reason: reason, Err: err}
}

// within makes a request, and returns when ctx ends, or the request's time: a client does so only if it is told to.
func within[T any](ctx context.Context, l *Locker, request func(context.Context) (T, error)) (answer T, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	go func() {
		answer, err := request(ctx)
		done <- result{answer, err}
	}()
	select {
	case got := <-done:
		return got.answer, got.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}
