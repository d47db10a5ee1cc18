package chaos

import (
	"context"
	"fmt"

	"github.com/fencekit/fencekit/chaos/fault"
	"github.com/fencekit/fencekit/chaos/history"
)

// trap is a point at which a process was told to stop, or to die.
type trap struct {
	process *process
	command command
	told    *listener
}

// set sets a trap. The process knows of it before it gets any later command.
func (p *process) set(c command) (*trap, error) {
	t := &trap{process: p, command: c, told: p.story.listen(func(e history.Event) bool {
		return e.Process == p.Name() && (e.Kind == history.Reached || e.Kind == history.Ends || e.Kind == history.Note && e.Name == noteDisarmed)
	})}
	if err := p.command(c); err != nil {
		t.told.stop()
		return nil, err
	}
	return t, nil
}

// sprung waits until the process has stopped, or died, at the point. When ctx ends
// first the trap is taken away, and if that was in time it fails with ErrMissed.
func (t *trap) sprung(ctx context.Context) error {
	defer t.told.stop()
	e, err := t.told.next(ctx)
	if err != nil {
		e, err = t.remove(context.WithoutCancel(ctx))
	}
	switch {
	case err != nil:
		return err
	case e.Kind != history.Reached:
		return fmt.Errorf("%w: %s did not come to %q", fault.ErrMissed, t.process.Name(), t.command.Arm)
	case t.command.Then == fault.ThenDie:
		<-t.process.end()
		return nil
	}
	return t.process.AwaitStopped(context.WithoutCancel(ctx)) // it has told that it is about to
}

// remove takes the trap away. It may still be sprung until the process says that it
// won't be.
func (t *trap) remove(ctx context.Context) (history.Event, error) {
	if err := t.process.command(command{Disarm: true}); err != nil {
		return history.Event{}, err
	}
	return t.told.next(ctx)
}
