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
	return won, nil
}

// Leader implements fence.Election.
func (e *election) Leader(ctx context.Context) (fence.Leader, error) {
	if err := ctx.Err(); err != nil {
		return fence.Leader{}, fmt.Errorf("guardtest: leader of %s: %w", e.name, err)
	}
	now, _, err := e.look()
	return now, err
}

// Observe implements fence.Election.
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

// look returns who leads, and a channel that is closed when that may have changed.
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
