package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// How many come at the same time.
const (
	firstUsers = 50
	herdSize   = 300
	herdStep   = herdSize / 10
	herdOfOne  = herdSize / 3 // lockers of each worker
)

// herdTTL is the time to live of the leases of a herd: to make them, and to renew
// them, takes a while.
const herdTTL = 5 * time.Second

// firstUse has operations come at the same time to a resource that the database has
// never heard of, and then take their turns.
func (s *Stage) firstUse(ctx context.Context) error {
	ops, unlock, err := s.crowd(ctx, firstUsers)
	if err != nil {
		return err
	}
	if err := unlock(ctx); err != nil {
		return err
	}
	return s.allSucceed(ctx, ops)
}

// allSucceed waits for operations in whose way nothing stands, unless the machine is
// so slow that leases run out.
func (s *Stage) allSucceed(ctx context.Context, ops []*Pending) error {
	for _, op := range ops {
		e, err := op.Wait(ctx)
		if err != nil {
			return err
		}
		if e.Kind != history.OK && e.Class != classAway {
			s.fails(fmt.Errorf("%w: operation %s failed: %s", errWrong, e.Op, e.Error))
		}
	}
	return nil
}

// crowd has so many operations wait for the resource of scripts, whose lock the run
// itself holds until unlock.
func (s *Stage) crowd(ctx context.Context, size int) (ops []*Pending, unlock func(context.Context) error, err error) {
	if unlock, err = s.lock(ctx, s.sku()); err != nil {
		return nil, nil, err
	}
	ops, err = s.ask(ctx, size)
	return ops, unlock, err
}

// ask asks all workers for operations, and returns when all of these have begun.
func (s *Stage) ask(ctx context.Context, number int) (ops []*Pending, err error) {
	begin := s.story.listen(func(e history.Event) bool { return e.Kind == history.Invoke })
	defer begin.stop()
	for n := range number {
		op, err := s.Operate(n, Op{Resource: s.sku()})
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	for range number {
		if _, err := begin.next(ctx); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// herd has hundreds wait for a lock, each with a lease of its own, and ends all these
// leases at once.
func (s *Stage) herd(ctx context.Context) error {
	if !s.Faults {
		return s.inTurn(ctx)
	}
	ops, unlock, err := s.gather(ctx)
	if err != nil {
		return err
	}
	leases, err := s.client.Leases(ctx)
	if err != nil {
		return err
	}
	silence := fault.EtcdPause{Member: 0}
	heal, err := s.inflict(ctx, silence)
	if err != nil {
		return err
	}
	if err := errors.Join(wait(ctx, herdTTL+TTL/2), s.heal(ctx, silence, heal)); err != nil {
		return err
	}
	if err := errors.Join(s.gone(ctx, leases), unlock(ctx), finish(ctx, ops...)); err != nil {
		return err
	}
	return s.firstUse(ctx) // by some of them, that have to begin anew
}

// gather has the herd wait, some after some, and again if any of it gave up before
// all were there.
func (s *Stage) gather(ctx context.Context) (ops []*Pending, unlock func(context.Context) error, err error) {
	for {
		if ops, unlock, err = s.crowd(ctx, herdStep); err != nil {
			return nil, nil, err
		}
		for len(ops) < herdSize && !slices.ContainsFunc(ops, (*Pending).over) {
			more, err := s.ask(ctx, herdStep)
			if ops = append(ops, more...); err == nil {
				err = s.queue(ctx, len(ops)+1, ops...)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		if !slices.ContainsFunc(ops, (*Pending).over) {
			return ops, unlock, nil
		}
		if err := errors.Join(unlock(ctx), finish(ctx, ops...)); err != nil {
			return nil, nil, err
		}
	}
}

// gone waits until leases are over.
func (s *Stage) gone(ctx context.Context, leases *clientv3.LeaseLeasesResponse) error {
	before := map[clientv3.LeaseID]bool{}
	for _, l := range leases.Leases {
		before[l.ID] = true
	}
	for {
		now, err := s.client.Leases(ctx)
		if err != nil {
			return err
		}
		left := 0
		for _, l := range now.Leases {
			if before[l.ID] {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
