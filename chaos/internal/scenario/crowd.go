package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/clock"
)

var firstUse = Scenario{
	Name: "first-use", Family: "crowds",
	Summary:  "50 operations start at the same time on a resource that was never used",
	Requires: []string{check.AtLeast(firstUsers, check.HitTogether)},
	Script:   steps((*script).firstUse),
}

var herd = Scenario{
	Name: "herd", Family: "crowds", Lockers: herdLockers, TTL: herdTTL,
	Summary:  "300 operations wait for one lock, each with its own lease, and all these leases end at once",
	Requires: []string{check.HitFault + "etcd-pause", check.AtLeast(herdSize+1, check.HitQueued)},
	Script:   steps((*script).herd),
}

// How many operations wait at the same time.
const (
	firstUsers  = 50
	herdSize    = 300
	herdStep    = herdSize / 10
	herdLockers = herdSize / 3 // of each worker
)

// herdTTL is the time to live of a herd's leases: creating and renewing so many takes a
// while.
const herdTTL = 5 * time.Second

// firstUse starts operations at the same time on a resource that has no fence yet; they
// then take turns.
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

// allSucceed waits for operations that have to succeed, unless the machine is so slow that
// leases expire.
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

// crowd has so many operations wait for the scripts' resource, whose lock the run itself
// holds until unlock.
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

// herd has hundreds of operations wait for a lock, each with its own lease, and ends all
// these leases at once.
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
	return s.firstUse(ctx) // with lockers of the herd, which need new sessions
}

// gather has the herd wait, one group after another. If an operation gives up before all
// wait, it begins again.
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

// gone waits until leases have ended.
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
