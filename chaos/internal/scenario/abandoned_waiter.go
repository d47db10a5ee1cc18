package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// waiterPatience is for how long a waiter waits that gives up. Its lease outlives
// that.
const waiterPatience = workload.TTL / 2

// ghosts have a waiter give up while it can't reach etcd, so that it can't say so:
// once with a connection that only is silent, and once with one that is broken.
// Nobody may wait behind it afterwards, although its process lives and renews its
// lease.
func (s *script) ghosts(ctx context.Context) error {
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
