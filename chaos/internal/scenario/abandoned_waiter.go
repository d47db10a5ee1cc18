package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var abandonedWaiter = Scenario{
	Name: "abandoned-waiter", Family: "waiters", Workers: 2,
	Summary:  "a waiter gives up while it can't reach etcd, and its process runs on; no other may wait behind its key",
	Requires: []string{check.HitFault + "partition", check.HitFault + "reset", check.AtLeast(2, check.HitQueued), check.HitFailed + "context ended"},
	Script:   steps((*script).abandonedWaiter),
}

// waiterPatience is for how long the waiter waits before it gives up. Its lease lasts
// longer.
const waiterPatience = workload.TTL / 2

// abandonedWaiter makes a waiter give up while it can't reach etcd, and so can't delete
// its key: once with a connection that is silent, and once with one that is reset. No
// other waiter may wait behind that key afterwards, although its process runs and renews
// its lease.
func (s *script) abandonedWaiter(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	cut := fault.Partition{Worker: 0, From: fault.ToEtcd, Way: fault.BothWays}
	silent := func(context.Context) error { return nil }
	broken := func(ctx context.Context) error {
		_, err := s.Inject(ctx, fault.Reset{Worker: 0, To: fault.ToEtcd})
		return err
	}
	for _, then := range []func(context.Context) error{silent, broken} {
		unlock, err := s.lock(ctx, s.sku())
		if err != nil {
			return err
		}
		op, err := s.OperateWithin(0, workload.Op{Resource: s.sku()}, waiterPatience)
		if err != nil {
			return err
		}
		if err := s.queue(ctx, 2, op); err != nil {
			return err
		}
		revert, err := s.Inject(ctx, cut)
		if err != nil {
			return err
		}
		if err := errors.Join(finish(ctx, op), then(ctx), s.Revert(ctx, cut, revert), unlock(ctx), s.succeed(ctx, 1)); err != nil {
			return err
		}
	}
	return nil
}
