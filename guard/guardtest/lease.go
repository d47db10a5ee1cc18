package guardtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencekit/fencekit/fence"
)

// lease is also the leadership of an election. Until it is granted it waits. The LockService's mutex guards what
// changes.
type lease struct {
	locker    *Locker
	grant     fence.Grant
	granted   chan struct{}
	value     string
	ctx       context.Context
	end       context.CancelCauseFunc
	contended context.Context
	contend   context.CancelFunc
}

func newLease(l *Locker, value string) *lease {
	e := &lease{locker: l, value: value, granted: make(chan struct{})}
	e.ctx, e.end = context.WithCancelCause(context.Background())
	e.contended, e.contend = context.WithCancel(context.Background())
	return e
}

func (e *lease) Grant() fence.Grant { return e.grant }

func (e *lease) Context() context.Context { return e.ctx }

func (e *lease) Done() <-chan struct{} { return e.ctx.Done() }

func (e *lease) Err() error { return context.Cause(e.ctx) }

func (e *lease) Remaining() time.Duration {
	if e.ctx.Err() != nil {
		return 0
	}
	return time.Minute
}

func (e *lease) AfterContended(f func()) (stop func() bool) {
	e.locker.service.mu.Lock()
	defer e.locker.service.mu.Unlock()
	if e.ctx.Err() != nil {
		return func() bool { return false }
	}
	return e.locker.process.after(e.contended, f)
}

func (e *lease) AfterLost(f func()) {
	e.locker.process.after(e.ctx, func() {
		if errors.Is(e.Err(), fence.ErrLeaseLost) {
			f()
		}
	})
}

func (e *lease) Release(ctx context.Context) error {
	s := e.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ctx.Err() != nil {
		return nil
	}
	s.end(e, fence.ErrReleased)
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}

func (e *lease) Proclaim(ctx context.Context, value string) error {
	if err := fence.ValidateValue(value); err != nil {
		return err
	}
	s := e.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case e.ctx.Err() != nil:
		return e.Err()
	case ctx.Err() != nil:
		return fmt.Errorf("guardtest: proclaim %s: %w", e.grant.Resource, ctx.Err())
	}
	e.value = value
	s.notify()
	return nil
}

func (e *lease) Resign(ctx context.Context) error { return e.Release(ctx) }

// Election returns the election of this name, as package fence/etcd does. It starts no goroutine.
func (l *Locker) Election(name string) (fence.Election, error) {
	if err := fence.ValidateResource(name); err != nil {
		return nil, err
	}
	return &election{locker: l, name: name}, nil
}

type election struct {
	locker *Locker
	name   string
}

func (e *election) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	if err := fence.ValidateValue(value); err != nil {
		return nil, err
	}
	won, err := e.locker.acquire(ctx, e.name, value)
	if err != nil {
		return nil, err
	}
	return won, nil
}

func (e *election) Leader(ctx context.Context) (fence.Leader, error) {
	if err := ctx.Err(); err != nil {
		return fence.Leader{}, fmt.Errorf("guardtest: leader of %s: %w", e.name, err)
	}
	now, _, err := e.look()
	return now, err
}

func (e *election) Observe(ctx context.Context) iter.Seq2[fence.Leader, error] {
	return func(yield func(fence.Leader, error) bool) {
		var last *fence.Leader
		for ctx.Err() == nil {
			now, changed, err := e.look()
			if last == nil || *last != now {
				last = &now
				if !yield(now, err) {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

func (e *election) look() (now fence.Leader, changed <-chan struct{}, err error) {
	s := e.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	if owner := s.lock(e.name).owner; owner != nil {
		return fence.Leader{Grant: owner.grant, Value: owner.value}, s.changed, nil
	}
	return fence.Leader{}, s.changed, fence.ErrNoLeader
}
