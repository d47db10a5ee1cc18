package chaos

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// trap is a point at which a process was told to stop, or to die. A process has one
// at a time, so that what it tells is told of that one.
type trap struct {
	process *process
	life    *life
	command command
	told    *listener
}

// set sets a trap. The process knows of it before it gets any later command. It fails
// with fault.ErrMissed if there is no process, or another trap in it. The caller must
// call sprung.
func (p *process) set(c command) (*trap, error) {
	if !p.trapping.TryLock() {
		return nil, fmt.Errorf("%w: %s has a trap already", fault.ErrMissed, p.Name())
	}
	t := &trap{process: p, life: p.present(), command: c, told: p.story.listen(func(e history.Event) bool {
		return e.Process == p.Name() && (e.Kind == history.Reached || e.Kind == history.Ends || e.Kind == history.Note && e.Name == noteDisarmed)
	})}
	if err := t.life.send(c); err != nil {
		t.told.stop()
		p.trapping.Unlock()
		return nil, missedIfEnded(err)
	}
	return t, nil
}

// sprung waits until the process has stopped, or died, at the point. When ctx ends
// first the trap is taken away, and if that was in time it fails with ErrMissed.
func (t *trap) sprung(ctx context.Context) error {
	defer t.process.trapping.Unlock()
	defer t.told.stop()
	e, err := t.told.next(ctx)
	late, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), healBound, fmt.Errorf("%w: %s doesn't answer", errStuck, t.process.Name()))
	defer cancel()
	if err != nil {
		e, err = t.remove(late)
	}
	switch {
	case err != nil:
		return err
	case e.Kind != history.Reached:
		return fmt.Errorf("%w: %s did not come to %q", fault.ErrMissed, t.process.Name(), t.command.Arm)
	case t.command.Then == fault.ThenDie:
		<-t.life.ended
		return nil
	}
	return t.life.awaitStopped(late) // it has told that it is about to
}

// sprungBy is sprung for a trap that an operation is to spring: it fails with
// ErrMissed also if that ends before.
func (t *trap) sprungBy(ctx context.Context, op *Pending) error {
	over, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = op.Wait(over)
	}()
	return t.sprung(over)
}

// remove takes the trap away. It may still be sprung until the process says that it
// won't be.
func (t *trap) remove(ctx context.Context) (history.Event, error) {
	if err := t.life.send(command{Disarm: true}); err != nil {
		return history.Event{}, missedIfEnded(err)
	}
	return t.told.next(ctx)
}
