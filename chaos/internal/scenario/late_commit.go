package scenario

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

// lateCommit has a COMMIT arrive when it is settled already that it took no effect. No
// other transaction moves the fence between the two: that what settled it has done so is
// all that keeps the COMMIT out.
func (s *script) lateCommit(ctx context.Context) error {
	if !s.Faults() {
		return s.inTurn(ctx)
	}
	op, err := s.stopAt(ctx, 0, workload.Op{Resource: s.sku(), Action: "do"}, s.OperationBound(), workload.PointWritten)
	if err != nil {
		return err
	}
	held, commits := pgproxy.HoldCommit(), s.Process(0).Commits()
	commits.OnCommit(func(string) *pgproxy.Action { return held })
	defer commits.OnCommit(nil)
	if err := s.resume(0, workload.PointWritten); err != nil {
		return err
	}
	if err := held.Wait(ctx); err != nil {
		return err
	}
	defer func() { _ = held.Drop(context.WithoutCancel(ctx)) }() // unless it was delivered
	e, err := op.Wait(ctx)
	if err != nil {
		return err
	}
	if e.Kind != history.Fail {
		return fmt.Errorf("%w: an operation whose COMMIT never came ended as %s, %q", ErrWrong, e.Kind, e.Error)
	}
	before, err := s.state(ctx)
	if err != nil {
		return err
	}
	_, _ = held.Deliver(ctx) // the data tell what came of it
	after, err := s.state(ctx)
	if err == nil && before != after {
		err = fmt.Errorf("%w: a COMMIT that came late changed %s to %s", ErrWrong, before, after)
	}
	return err
}
