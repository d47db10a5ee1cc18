package environment

import (
	"context"
	"fmt"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/chaos/internal/workload"
)

// Operation is an operation that a worker was asked for.
type Operation struct {
	op     workload.Op
	within time.Duration
	ended  chan struct{} // closed when it, or its process, has ended
	end    history.Event // how it ended; set before ended is closed
}

// Operate asks a worker for an operation. An op without an id or a seed is given one.
func (s *Environment) Operate(number int, op workload.Op) (*Operation, error) {
	return s.OperateWithin(number, op, s.cfg.Bounds.Operation)
}

// OperateWithin is Operate for an operation whose context ends within a time.
func (s *Environment) OperateWithin(number int, op workload.Op, within time.Duration) (*Operation, error) {
	p := s.Process(number)
	n := s.operated.Add(1)
	if op.ID == "" {
		op.ID = fmt.Sprintf("%s.op%d", p.Name(), n)
	}
	if op.Seed == 0 {
		op.Seed = s.cfg.Seed
	}
	events := s.cfg.Trace.Listen(func(e history.Event) bool {
		ends := e.Kind == history.OK || e.Kind == history.Fail || e.Kind == history.Unknown
		return ends && e.Op == op.ID || e.Kind == history.Ends && e.Process == p.Name()
	})
	if err := p.Command(worker.Command{Operate: &op, Within: within}); err != nil {
		events.Stop()
		return nil, err
	}
	asked := &Operation{op: op, within: within + s.cfg.Bounds.Grace, ended: make(chan struct{})}
	go func() {
		defer events.Stop()
		asked.end, _ = events.Next(context.Background()) // every process ends before its run does
		close(asked.ended)
	}()
	return asked, nil
}

// Done is closed when the operation, or its process, has ended.
func (p *Operation) Done() <-chan struct{} { return p.ended }

// Ended reports whether the operation, or its process, has ended.
func (p *Operation) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// Wait waits for the end of the operation and returns how it ended. It fails if the
// process ended first, or if the operation hangs.
func (p *Operation) Wait(ctx context.Context) (history.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.within, fmt.Errorf("%w: it still runs after %v", ErrHangs, p.within))
	defer cancel()
	select {
	case <-p.ended:
	case <-ctx.Done():
		return history.Event{}, fmt.Errorf("chaos: waiting for operation %s: %w", p.op.ID, context.Cause(ctx))
	}
	if p.end.Kind == history.Ends {
		return p.end, fmt.Errorf("%w before operation %s: %s", ErrProcessEnded, p.op.ID, p.end.Error)
	}
	return p.end, nil
}

// CallAgain has a worker call Operate again for an operation that has ended, and waits for
// the call to return.
func (s *Environment) CallAgain(ctx context.Context, number int, op workload.Op) error {
	w := s.Process(number)
	events := s.cfg.Trace.Listen(func(e history.Event) bool {
		return e.Process == w.Name() && (e.Kind == history.Ends || e.Kind == history.Note && e.Name == worker.NoteCalledAgain)
	})
	defer events.Stop()
	if err := w.Command(worker.Command{Again: &op, Within: s.cfg.Bounds.Operation}); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, s.cfg.Bounds.Operation+s.cfg.Bounds.Grace, ErrHangs)
	defer cancel()
	e, err := events.Next(bounded)
	if err == nil && e.Kind == history.Ends {
		err = fmt.Errorf("%w: %s: %s", ErrProcessEnded, e.Process, e.Error)
	}
	return err
}

// Trap is a point at which a process is to stop, or to die. A process has one at a time,
// so that its events are about that one.
type Trap struct {
	worker  *Worker
	process *process
	command worker.Command
	events  *history.Listener
}

// SetTrap has the process stop or die when it reaches a point; of awaits
// (worker.PointAwait) it skips the first skip. The trap is set before any later command
// is read. SetTrap fails with fault.ErrMissed if the process has ended, or has another
// trap. The caller must call Sprung.
func (p *Worker) SetTrap(point string, skip int, then fault.Then) (*Trap, error) {
	if !p.trapping.TryLock() {
		return nil, fmt.Errorf("%w: %s has a trap already", fault.ErrMissed, p.Name())
	}
	c := worker.Command{Arm: point, Skip: skip, Then: then}
	t := &Trap{worker: p, process: p.present(), command: c, events: p.trace.Listen(func(e history.Event) bool {
		return e.Process == p.Name() && (e.Kind == history.Reached || e.Kind == history.Ends || e.Kind == history.Note && e.Name == worker.NoteDisarmed)
	})}
	if err := t.process.send(c); err != nil {
		t.events.Stop()
		p.trapping.Unlock()
		return nil, missedIfEnded(err)
	}
	return t, nil
}

// Sprung waits until the process has stopped, or died, at the point. If ctx ends first
// Sprung removes the trap, and fails with fault.ErrMissed unless the point was reached
// before that.
func (t *Trap) Sprung(ctx context.Context) error {
	defer t.worker.trapping.Unlock()
	defer t.events.Stop()
	e, err := t.events.Next(ctx)
	late, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), revertBound, fmt.Errorf("%w: %s doesn't answer", ErrHangs, t.worker.Name()))
	defer cancel()
	if err != nil {
		e, err = t.remove(late)
	}
	switch {
	case err != nil:
		return err
	case e.Kind != history.Reached:
		return fmt.Errorf("%w: %s did not reach %q", fault.ErrMissed, t.worker.Name(), t.command.Arm)
	case t.command.Then == fault.ThenKill:
		<-t.process.ended
		return nil
	}
	return t.process.awaitStopped(late) // it is about to stop
}

// SprungBy is Sprung for a trap that an operation is to spring: it fails with
// fault.ErrMissed if the operation ends first.
func (t *Trap) SprungBy(ctx context.Context, op *Operation) error {
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = op.Wait(over)
	}()
	return t.Sprung(over)
}

// remove removes the trap. It returns the event that settles it: the point was reached
// first, or it is disarmed.
func (t *Trap) remove(ctx context.Context) (history.Event, error) {
	if err := t.process.send(worker.Command{Disarm: true}); err != nil {
		return history.Event{}, missedIfEnded(err)
	}
	return t.events.Next(ctx)
}
