package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var isolatedHolder = Scenario{
	Name: "isolated-holder", Family: "isolation", Workers: 2,
	Summary:  "a worker is cut off from etcd, from Postgres and from both in mid-operation, and writes before or after another takes over",
	Requires: []string{check.HitFault + "partition", check.HitPaused + workload.PointRead, check.HitLost},
	Script:   steps((*script).isolations),
}

// isolations cuts a worker off in mid-operation, from etcd, from Postgres and from both,
// until another worker has taken over.
func (s *script) isolations(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	for _, from := range []fault.Server{fault.ToEtcd, fault.ToPostgres, fault.ToBoth} {
		for _, late := range []bool{false, true} {
			if err := s.isolation(ctx, from, late); err != nil {
				return err
			}
		}
	}
	return nil
}

// isolation cuts the worker off once. The worker goes on as soon as it is cut off or, if
// late, when another has taken over; in both cases before the fault is reverted.
func (s *script) isolation(ctx context.Context, from fault.Server, late bool) error {
	// Short, so that it gives up itself if it can renew its lease and can't reach the database.
	op, err := s.stopAt(ctx, 0, workload.Op{Resource: s.sku()}, 2*workload.TTL, workload.PointRead)
	if err != nil {
		return err
	}
	cut := fault.Partition{Worker: 0, From: from, Way: fault.BothWays}
	revert, err := s.Inject(ctx, cut)
	if err != nil {
		return errors.Join(err, s.resume(0, workload.PointRead))
	}
	if late {
		err = errors.Join(s.succeed(ctx, 1), s.goOn(ctx, from))
	} else {
		err = errors.Join(s.goOn(ctx, from), s.succeed(ctx, 1))
	}
	return errors.Join(err, s.Revert(ctx, cut, revert), finish(ctx, op))
}

// goOn resumes the isolated worker. If the worker can reach the database, goOn returns
// when it knows the outcome of its transaction.
func (s *script) goOn(ctx context.Context, from fault.Server) error {
	learned := s.Trace().Listen(func(e history.Event) bool {
		ends := e.Kind == history.OK || e.Kind == history.Fail || e.Kind == history.Unknown
		return e.Process == s.Process(0).Name() && (ends || e.Kind == history.Rejected)
	})
	defer learned.Stop()
	if err := s.resume(0, workload.PointRead); err != nil || from != fault.ToEtcd {
		return err
	}
	_, err := learned.Next(ctx)
	return err
}
