package chaos

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// misuse has workers do what a function of a transaction should not do, one after
// another, each while another worker waits for the lock: it ends as it is documented,
// and nobody else is disturbed.
func (s *Stage) misuse(ctx context.Context) error {
	for number, c := range []struct {
		action, class string
		stays         int // remarks: what a raw COMMIT has written
	}{
		{actionCommit, classEnded, 1},
		{actionReopen, classEnded, 1},
		{actionHoldCommit, classEnded, 1},
		{actionSavepoint, "", 0},
		{actionPanic, "panicked", 0},
		{actionGoexit, "goroutine ended", 0},
	} {
		op, err := s.Operate(number, Op{Resource: s.sku(), Action: c.action})
		if err != nil {
			return err
		}
		next, err := s.do(ctx, number+1, Op{Resource: s.sku(), Action: "do"})
		if err != nil {
			return err
		}
		e, err := op.Wait(ctx)
		if err != nil {
			return err
		}
		var remarks int
		if err := s.pool.QueryRow(ctx, "select count(*) from remarks where op = $1", e.Op).Scan(&remarks); err != nil {
			return err
		}
		if e.Class != c.class || remarks != c.stays {
			s.fails(fmt.Errorf("%w: %s ended as %s, %q, and left %d remarks", errWrong, c.action, e.Kind, e.Error, remarks))
		}
		if next.Kind != history.OK {
			s.fails(fmt.Errorf("%w: after %s: %s", errWrong, c.action, next.Error))
		}
	}
	return nil
}
