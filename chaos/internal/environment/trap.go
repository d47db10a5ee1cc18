package environment

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// Trap is a point at which a process was told to stop, or to die. A process has one
// at a time, so that what it tells is told of that one.
type Trap struct {
	worker  *Worker
	process *process
	command worker.Command
	events  *history.Listener
}

// SetTrap has the process stop or die at a point; of awaits (worker.PointAwait) at the
// one after skip others. The process knows of it before it gets any later command. It fails
// with fault.ErrMissed if there is no process, or another trap in it. The caller must
// call Sprung.
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

// Sprung waits until the process has stopped, or died, at the point. When ctx ends
// first the trap is taken away, and if that was in time it fails with ErrMissed.
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
		return fmt.Errorf("%w: %s did not come to %q", fault.ErrMissed, t.worker.Name(), t.command.Arm)
	case t.command.Then == fault.ThenDie:
		<-t.process.ended
		return nil
	}
	return t.process.awaitStopped(late) // it has told that it is about to
}

// SprungBy is Sprung for a trap that an operation is to spring: it fails with
// ErrMissed also if that ends before.
func (t *Trap) SprungBy(ctx context.Context, op *Operation) error {
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = op.Wait(over)
	}()
	return t.Sprung(over)
}

// remove takes the trap away. It may still be sprung until the process says that it
// won't be.
func (t *Trap) remove(ctx context.Context) (history.Event, error) {
	if err := t.process.send(worker.Command{Disarm: true}); err != nil {
		return history.Event{}, missedIfEnded(err)
	}
	return t.events.Next(ctx)
}
