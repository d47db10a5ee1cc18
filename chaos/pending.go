package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/history"
)

// Pending is an operation that a script has asked a worker for.
type Pending struct {
	op     Op
	told   *listener
	within time.Duration
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
	pending := &Pending{op: op, within: within + s.bounds.grace, told: s.story.listen(func(e history.Event) bool {
		ends := e.Kind == history.OK || e.Kind == history.Fail || e.Kind == history.Unknown
		return ends && e.Op == op.ID || e.Kind == history.Ends && e.Process == p.Name()
	})}
	if err := p.command(command{Operate: &op, Within: within}); err != nil {
		pending.told.stop()
		return nil, err
	}
	return pending, nil
}

// Wait waits for the end of the operation and returns how it ended, or an error if
// its process ended first, or if it still goes on when its time has long been over. It
// can be called once.
func (p *Pending) Wait(ctx context.Context) (history.Event, error) {
	defer p.told.stop()
	ctx, cancel := context.WithTimeoutCause(ctx, p.within, fmt.Errorf("%w: after %v it still goes on", errStuck, p.within))
	defer cancel()
	e, err := p.told.next(ctx)
	if err != nil {
		return e, fmt.Errorf("chaos: waiting for operation %s: %w", p.op.ID, err)
	}
	if e.Kind == history.Ends {
		return e, fmt.Errorf("%w before operation %s: %s", errProcessEnded, p.op.ID, e.Error)
	}
	return e, nil
}
