package scenario

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/workload"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

var lateCommit = Scenario{
	Name: "late-commit", Family: "tokens", Workers: 2,
	Summary:  "a COMMIT is held up until it has been resolved as not applied, and arrives then, while no other transaction moves the fence",
	Requires: []string{check.HitPaused + workload.PointWritten, check.HitResolvedNotApplied},
	Script:   steps((*script).lateCommit),
}

// lateCommit delivers a COMMIT after it was resolved as not applied. No other transaction
// moves the fence in between: only the void by which it was resolved rejects the COMMIT.
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
	_, _ = held.Deliver(ctx) // the data show its outcome
	after, err := s.state(ctx)
	if err == nil && before != after {
		err = fmt.Errorf("%w: a late COMMIT changed %s to %s", ErrWrong, before, after)
	}
	return err
}
