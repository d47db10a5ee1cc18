package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var stalledHolder = Scenario{
	Name: "stalled-holder", Family: "stalls", Stock: saleStock,
	Controls: []string{"no-lock", "etcd-mutex", "redis-setnx", "redis-watchdog", "token-compare", "lease-equality", "check-without-lock", "group-matching"},
	Summary:  "a worker is paused between read and write until another has its lock and has read; then both write",
	Requires: []string{check.HitFault + "pause", check.HitPaused + workload.PointRead},
	Script:   steps(func(s *script, ctx context.Context) error { return s.sale(ctx, 2, "do", workload.PointRead, expiry) }),
}

var stalledWriter = Scenario{
	Name: "stalled-writer", Family: "stalls", Stock: saleStock, Controls: []string{"client-clock"},
	Summary:  "a worker is paused after its last check, before COMMIT is sent, until another has its lock and has read; then both write",
	Requires: []string{check.HitFault + "pause", check.HitPaused + workload.PointWritten},
	Script:   steps(func(s *script, ctx context.Context) error { return s.sale(ctx, 2, "do", workload.PointWritten, expiry) }),
}

// stall is the schedule that breaks locks without a fence: one worker is paused at a point
// of an operation of that action, until another one has the lock and has read; then the
// first goes on and writes, and then the second.
func (s *script) stall(ctx context.Context, action, point string, loss loss) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	if err := loss.before(ctx); err != nil {
		return err
	}
	first, stopped, err := s.operateTo(ctx, 0, action, point, takeover)
	if err != nil || !stopped {
		return errors.Join(err, finish(ctx, first))
	}
	if err := loss.after(ctx); err != nil {
		return errors.Join(err, s.resume(0, point))
	}
	second, stopped, err := s.operateTo(ctx, 1, "do", workload.PointRead, takeover)
	if err := errors.Join(err, s.resume(0, point)); err != nil {
		return err
	}
	if err := finish(ctx, first); err != nil {
		return err
	}
	if stopped {
		if err := s.resume(1, workload.PointRead); err != nil {
			return err
		}
	}
	return finish(ctx, second)
}

// inTurn is a script without its faults: one operation after the other.
func (s *script) inTurn(ctx context.Context) error {
	for number := range 2 {
		op, err := s.Operate(number, workload.Op{Resource: s.sku()})
		if err != nil {
			return err
		}
		if err := finish(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

// sale stalls a worker at a point of an action several times while stock is sold, and then sells the
// rest: what was sold twice is missing in the end.
func (s *script) sale(ctx context.Context, stalls int, action, point string, loss loss) error {
	for range stalls {
		if err := s.stall(ctx, action, point, loss); err != nil {
			return err
		}
	}
	s.FaultsOver()
	return s.sellOut(ctx)
}

// sellOut has one worker after the other sell until one finds too little in stock.
func (s *script) sellOut(ctx context.Context) error {
	for number := 0; ; number++ {
		op, err := s.Operate(number, workload.Op{Resource: s.sku()})
		if err != nil {
			return err
		}
		e, err := op.Wait(ctx)
		if err != nil {
			return err
		}
		if e.Class == history.ClassSoldOut || number > 10*saleStock {
			return nil
		}
	}
}

// saleStock is what a sale has in stock of each resource.
const saleStock = 24
