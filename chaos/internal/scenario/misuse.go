package scenario

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/stock"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

var userCode = Scenario{
	Name: "user-code", Family: "user-code",
	Summary:  "user code sends its own COMMIT, begins another transaction after it, rolls back to a savepoint, panics, and ends its goroutine",
	Requires: []string{check.HitFailed + workload.ClassEnded, check.HitFailed + "panicked", check.HitFailed + "goroutine ended"},
	Script:   steps((*script).misuse),
}

// misuse has operations do what a function of a transaction must not do, one after another,
// each while another worker waits for the lock: each ends as documented, and the waiter's
// operation succeeds.
func (s *script) misuse(ctx context.Context) error {
	for number, c := range []struct {
		action, class string
		stays         int // how many remarks a raw COMMIT leaves
	}{
		{stock.ActionCommit, workload.ClassEnded, 1},
		{stock.ActionReopen, workload.ClassEnded, 1},
		{stock.ActionHoldCommit, workload.ClassEnded, 1},
		{stock.ActionSavepoint, "", 0},
		{stock.ActionPanic, "panicked", 0},
		{stock.ActionGoexit, "goroutine ended", 0},
	} {
		op, err := s.Operate(number, workload.Op{Resource: s.sku(), Action: c.action})
		if err != nil {
			return err
		}
		next, err := s.do(ctx, number+1, workload.Op{Resource: s.sku(), Action: "do"})
		if err != nil {
			return err
		}
		e, err := op.Wait(ctx)
		if err != nil {
			return err
		}
		var remarks int
		if err := s.Database().QueryRow(ctx, "select count(*) from remarks where op = $1", e.Op).Scan(&remarks); err != nil {
			return err
		}
		if e.Class != c.class || remarks != c.stays {
			s.Fail(fmt.Errorf("%w: %s ended as %s, %q, and left %d remarks", ErrWrong, c.action, e.Kind, e.Error, remarks))
		}
		if next.Kind != history.OK {
			s.Fail(fmt.Errorf("%w: after %s: %s", ErrWrong, c.action, next.Error))
		}
	}
	return nil
}
