package environment

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
)

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
