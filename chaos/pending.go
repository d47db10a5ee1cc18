package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// Pending is an operation that a script has asked a worker for.
type Pending struct {
	op     Op
	within time.Duration
	ended  chan struct{} // closed when it, or its process, has ended
	end    history.Event // how; set before that
}

// Operate asks a worker for an operation, in a script. op's id and seed are made
// from the run's unless it has some.
func (s *Stage) Operate(number int, op Op) (*Pending, error) {
	return s.operate(s.worker(number), op, s.bounds.op)
}

func (s *Stage) operate(p *process, op Op, within time.Duration) (*Pending, error) {
	n := s.operated.Add(1)
	if op.ID == "" {
		op.ID = fmt.Sprintf("%s.op%d", p.Name(), n)
	}
	if op.Seed == 0 {
		op.Seed = s.Seed
	}
	told := s.story.listen(func(e history.Event) bool {
		ends := e.Kind == history.OK || e.Kind == history.Fail || e.Kind == history.Unknown
		return ends && e.Op == op.ID || e.Kind == history.Ends && e.Process == p.Name()
	})
	if err := p.command(command{Operate: &op, Within: within}); err != nil {
		told.stop()
		return nil, err
	}
	pending := &Pending{op: op, within: within + s.bounds.grace, ended: make(chan struct{})}
	go func() {
		defer told.stop()
		pending.end, _ = told.next(context.Background()) // every process ends before its run does
		close(pending.ended)
	}()
	return pending, nil
}

// over reports whether it has ended.
func (p *Pending) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Wait waits for the end of the operation and returns how it ended, or an error if
// its process ended first, or if it still goes on when its time has long been over.
func (p *Pending) Wait(ctx context.Context) (history.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.within, fmt.Errorf("%w: after %v it still goes on", errStuck, p.within))
	defer cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
		return history.Event{}, fmt.Errorf("chaos: waiting for operation %s: %w", p.op.ID, context.Cause(ctx))
	}
	if p.end.Kind == history.Ends {
		return p.end, fmt.Errorf("%w before operation %s: %s", errProcessEnded, p.op.ID, p.end.Error)
	}
	return p.end, nil
}
