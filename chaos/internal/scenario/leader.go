package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/environment"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var etcdLeader = Scenario{
	Name: "etcd-leader", Family: "leaders", Members: 3,
	Summary: "of three etcd members the leader is killed, paused and isolated, one after another, while a holder is paused in mid-operation and others wait",
	Requires: []string{
		check.HitFault + "etcd-kill", check.HitFault + "etcd-pause", check.HitFault + "etcd-isolate",
		check.HitPaused + workload.PointRead, check.AtLeast(3, check.HitQueued),
	},
	Script: steps((*script).leaders),
}

// leaders kills, pauses and isolates the leader of etcd while the holder of a lock is
// paused and others wait for it.
func (s *script) leaders(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	for _, f := range []fault.Fault{fault.EtcdKill{Member: fault.Leader}, fault.EtcdPause{Member: fault.Leader}, fault.EtcdIsolate{Member: fault.Leader}} {
		if err := s.leader(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *script) leader(ctx context.Context, f fault.Fault) error {
	op, err := s.stopAt(ctx, 0, workload.Op{Resource: s.sku()}, s.OperationBound(), workload.PointRead)
	if err != nil {
		return err
	}
	err = s.withoutLeader(ctx, f, func() error {
		return errors.Join(s.succeed(ctx, 1), s.succeed(ctx, 2), s.resume(0, workload.PointRead), finish(ctx, op))
	})
	return errors.Join(err, s.Process(0).Resume()) // after a failure it is still paused
}

// withoutLeader has two workers wait for the lock, injects a fault into the leader, and
// calls do before it is reverted.
func (s *script) withoutLeader(ctx context.Context, f fault.Fault, do func() error) error {
	var waiting []*environment.Operation
	for number := 1; number <= 2; number++ {
		op, err := s.Operate(number, workload.Op{Resource: s.sku()})
		if err != nil {
			return err
		}
		waiting = append(waiting, op)
	}
	if err := s.queue(ctx, 3, waiting...); err != nil {
		return err
	}
	revert, err := s.Inject(ctx, f)
	if err != nil {
		return err
	}
	return errors.Join(finish(ctx, waiting...), do(), s.Revert(ctx, f, revert))
}
