package scenario

import (
	"context"
	"errors"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// stall is the schedule that locks alone don't stand: one worker stands still at a
// point, in the midst of an operation of that action, until another one has the lock and has read;
// then the first goes on and writes, and then the second.
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

// inTurn is the same without faults: one operation after the other.
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

// sale stalls at a point several times while stock is sold, and then sells what is
// left: what was sold twice is missing in the end.
func (s *script) sale(ctx context.Context, stalls int, point string, loss loss) error {
	for range stalls {
		if err := s.stall(ctx, "do", point, loss); err != nil {
			return err
		}
	}
	s.FaultsOver()
	return s.sellOut(ctx)
}

// sellOut has one worker after the other sell until one is told that nothing is
// left.
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

// saleStock is what there is to sell in a sale.
const saleStock = 24
