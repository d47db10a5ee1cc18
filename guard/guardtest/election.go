package guardtest

import (
	"context"
	"fmt"
	"iter"

	"github.com/fencekit/fencekit/fence"
)

// Election returns the election of a name, as that of package fence/etcd does: it
// is the queue of the resource of the same name. It starts no goroutine.
func (l *Locker) Election(name string) (fence.Election, error) {
	if err := fence.ValidateResource(name); err != nil {
		return nil, err
	}
	return &election{locker: l, name: name}, nil
}

// election is a fence.Election.
type election struct {
	locker *Locker
	name   string
}

// Campaign implements fence.Election.
func (e *election) Campaign(ctx context.Context, value string) (fence.Leadership, error) {
	won, err := e.locker.acquire(ctx, e.name, value)
	if err != nil {
		return nil, err
	}
	return leadership{won}, nil
}

// Leader implements fence.Election.
func (e *election) Leader(ctx context.Context) (fence.Leader, error) {
	if err := ctx.Err(); err != nil {
		return fence.Leader{}, fmt.Errorf("guardtest: leader of %s: %w", e.name, err)
	}
	now, _ := e.look()
	return now, noLeader(now)
}

// Observe implements fence.Election.
func (e *election) Observe(ctx context.Context) iter.Seq2[fence.Leader, error] {
	return func(yield func(fence.Leader, error) bool) {
		var last *fence.Leader
		for ctx.Err() == nil {
			now, changed := e.look()
			if last == nil || *last != now {
				last = &now
				if !yield(now, noLeader(now)) {
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

// look returns who leads, and a channel that is closed when that may have changed.
func (e *election) look() (fence.Leader, <-chan struct{}) {
	s := e.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	if k := s.resources[e.name]; k != nil && k.owner != nil {
		return fence.Leader{Grant: k.owner.grant, Value: k.owner.value}, s.changed
	}
	return fence.Leader{}, s.changed
}

// noLeader is the error that goes with a leader.
func noLeader(now fence.Leader) error {
	if now == (fence.Leader{}) {
		return fence.ErrNoLeader
	}
	return nil
}

// leadership is a fence.Leadership.
type leadership struct{ *lease }

// Proclaim implements fence.Leadership.
func (l leadership) Proclaim(ctx context.Context, value string) error {
	s := l.locker.service
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
		return context.Cause(l.ctx)
	case ctx.Err() != nil:
		return fmt.Errorf("guardtest: proclaim %s: %w", l.grant.Resource, ctx.Err())
	}
	l.value = value
	s.notify()
	return nil
}

// Resign implements fence.Leadership.
func (l leadership) Resign(ctx context.Context) error { return l.Release(ctx) }
