package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/clock"
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
func (s *script) firstUse(ctx context.Context) error {
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
func (s *script) allSucceed(ctx context.Context, ops []*environment.Operation) error {
	for _, op := range ops {
		e, err := op.Wait(ctx)
		if err != nil {
			return err
		}
		if e.Kind != history.OK && e.Class != workload.ClassAway {
			s.Fail(fmt.Errorf("%w: operation %s failed: %s", ErrWrong, e.Op, e.Error))
		}
	}
	return nil
}

// crowd has so many operations wait for the resource of scripts, whose lock the run
// itself holds until unlock.
func (s *script) crowd(ctx context.Context, size int) (ops []*environment.Operation, unlock func(context.Context) error, err error) {
	if unlock, err = s.lock(ctx, s.sku()); err != nil {
		return nil, nil, err
	}
	ops, err = s.ask(ctx, size)
	return ops, unlock, err
}

// ask asks all workers for operations, and returns when all of these have begun.
func (s *script) ask(ctx context.Context, number int) (ops []*environment.Operation, err error) {
	begin := s.Trace().Listen(func(e history.Event) bool { return e.Kind == history.Invoke })
	defer begin.Stop()
	for n := range number {
		op, err := s.Operate(n, workload.Op{Resource: s.sku()})
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	for range number {
		if _, err := begin.Next(ctx); err != nil {
			return nil, err
		}
	}
	return ops, nil
}

// herd has hundreds wait for a lock, each with a lease of its own, and ends all these
// leases at once.
func (s *script) herd(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	ops, unlock, err := s.gather(ctx)
	if err != nil {
		return err
	}
	leases, err := s.Observer().Leases(ctx)
	if err != nil {
		return err
	}
	silence := fault.EtcdPause{Member: 0}
	revert, err := s.Inject(ctx, silence)
	if err != nil {
		return err
	}
	if err := errors.Join(clock.Sleep(ctx, herdTTL+workload.TTL/2), s.Revert(ctx, silence, revert)); err != nil {
		return err
	}
	if err := errors.Join(s.gone(ctx, leases), unlock(ctx), finish(ctx, ops...)); err != nil {
		return err
	}
	return s.firstUse(ctx) // by some of them, that have to begin anew
}

// gather has the herd wait, some after some, and again if any of it gave up before
// all were there.
func (s *script) gather(ctx context.Context) (ops []*environment.Operation, unlock func(context.Context) error, err error) {
	for {
		if ops, unlock, err = s.crowd(ctx, herdStep); err != nil {
			return nil, nil, err
		}
		for len(ops) < herdSize && !slices.ContainsFunc(ops, (*environment.Operation).Ended) {
			more, err := s.ask(ctx, herdStep)
			if ops = append(ops, more...); err == nil {
				err = s.queue(ctx, len(ops)+1, ops...)
			}
			if err != nil {
				return nil, nil, err
			}
		}
		if !slices.ContainsFunc(ops, (*environment.Operation).Ended) {
			return ops, unlock, nil
		}
		if err := errors.Join(unlock(ctx), finish(ctx, ops...)); err != nil {
			return nil, nil, err
		}
	}
}

// gone waits until leases are over.
func (s *script) gone(ctx context.Context, leases *clientv3.LeaseLeasesResponse) error {
	before := map[clientv3.LeaseID]bool{}
	for _, l := range leases.Leases {
		before[l.ID] = true
	}
	for {
		now, err := s.Observer().Leases(ctx)
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
		if err := clock.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}
