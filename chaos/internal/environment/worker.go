package environment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

// Worker is one worker as its run sees it, through all its processes. It is a
// fault.Worker. Its methods may be called concurrently.
type Worker struct {
	spec       worker.Spec
	log        string // file that gets the processes' standard error
	closeBound time.Duration
	etcd       []*netfault.Link
	postgres   *netfault.Link
	commits    *pgproxy.Proxy
	trace      *history.Trace

	stalling sync.Mutex // while the world is being stopped, or stands
	trapping sync.Mutex // while a trap is set

	mu        sync.Mutex
	processes []*process // the last one is the present process
	busy      bool       // it works by itself, and so does whoever takes its place
}

// Name implements fault.Worker.
func (p *Worker) Name() string { return p.spec.Worker }

// ToEtcd implements fault.Worker.
func (p *Worker) ToEtcd() []*netfault.Link { return p.etcd }

// ToPostgres implements fault.Worker.
func (p *Worker) ToPostgres() *netfault.Link { return p.postgres }

// Commits implements fault.Worker.
func (p *Worker) Commits() *pgproxy.Proxy { return p.commits }

// Start implements fault.Worker: it returns when the process is ready for commands.
// Until then no fault can reach it.
func (p *Worker) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.processes); n > 0 && !p.processes[n-1].gone() {
		return nil
	}
	ready := p.trace.Listen(func(e history.Event) bool {
		return e.Process == p.Name() && (e.Kind == history.Note && e.Name == worker.NoteReady || e.Kind == history.Ends)
	})
	defer ready.Stop()
	l, err := p.begin()
	if err != nil {
		return fmt.Errorf("chaos: starting %s: %w", p.Name(), err)
	}
	p.processes = append(p.processes, l)
	e, err := ready.Next(ctx)
	if err == nil && e.Kind == history.Ends {
		err = errors.New(l.lastOutput())
	}
	if err != nil {
		return fmt.Errorf("chaos: %s did not come up: %w", p.Name(), err)
	}
	if p.busy {
		return l.send(worker.Command{Load: true})
	}
	return nil
}

// present is the present process, which may have ended; nil if there never was one.
func (p *Worker) present() *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.processes) == 0 {
		return nil
	}
	return p.processes[len(p.processes)-1]
}

// Command tells the present process to do something. It fails with errProcessEnded
// if that has ended.
func (p *Worker) Command(c worker.Command) error {
	p.mu.Lock()
	p.busy = (p.busy || c.Load) && !c.Quiet
	l := p.processes[len(p.processes)-1]
	p.mu.Unlock()
	return l.send(c)
}

// Signal implements fault.Worker. It fails with fault.ErrMissed if the process has
// ended, or is to be stopped and already is: one resume would end both stops.
func (p *Worker) Signal(sig syscall.Signal) error {
	l := p.present()
	if l.gone() {
		return fmt.Errorf("%w: %s has ended", fault.ErrMissed, p.Name())
	}
	if stopped, err := pause.Stopped(l.child.Pid()); sig == syscall.SIGSTOP && stopped && err == nil {
		return fmt.Errorf("%w: %s is stopped already", fault.ErrMissed, p.Name())
	}
	return l.child.Signal(sig)
}

// Resume implements fault.Worker.
func (p *Worker) Resume() error { return p.present().child.Resume() }

// Kill implements fault.Worker. It returns when all that the process told has been
// taken.
func (p *Worker) Kill() error {
	l := p.present()
	if l.gone() {
		return fmt.Errorf("%w: %s has ended already", fault.ErrMissed, p.Name())
	}
	return l.kill()
}

// AwaitStopped implements fault.Worker.
func (p *Worker) AwaitStopped(ctx context.Context) error { return p.present().awaitStopped(ctx) }

// StopTheWorld implements fault.Worker. One stop at a time: a world that stands
// can't be stopped.
func (p *Worker) StopTheWorld(ctx context.Context) (func(context.Context) error, error) {
	if !p.stalling.TryLock() {
		return nil, fmt.Errorf("%w: the world of %s stands already", fault.ErrMissed, p.Name())
	}
	l := p.present()
	if err := l.send(worker.Command{Stall: true}); err != nil {
		p.stalling.Unlock()
		return nil, missedIfEnded(err)
	}
	stop, err := l.world.Next(ctx)
	if err != nil {
		go p.resumeLate(l.world)
		return nil, fmt.Errorf("%w: %s: %w", fault.ErrMissed, p.Name(), err)
	}
	return func(context.Context) error {
		defer p.stalling.Unlock()
		return stop.Resume()
	}, nil
}

// resumeLate waits for a stop whose caller has given up, and resumes the world at
// once. It also returns when the process has ended.
func (p *Worker) resumeLate(world *pause.WorldStopper) {
	defer p.stalling.Unlock()
	if stop, err := world.Next(context.Background()); err == nil {
		_ = stop.Resume() // it may have ended
	}
}

// Arm implements fault.Worker.
func (p *Worker) Arm(ctx context.Context, point string, then fault.Then) error {
	t, err := p.SetTrap(point, 0, then)
	if err != nil {
		return err
	}
	return t.Sprung(ctx)
}

// Stop ends the present process orderly, or by force if that takes too long.
func (p *Worker) Stop() error {
	l := p.present()
	if l == nil || l.gone() {
		return nil
	}
	return l.close(p.closeBound)
}

// kill ends the present process by force, if there is one.
func (p *Worker) kill() error {
	l := p.present()
	if l == nil || l.gone() {
		return nil
	}
	return l.kill()
}

// crashes says which of the worker's processes ended by themselves. It leaves out
// those that run.
func (p *Worker) crashes() (errs []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range slices.DeleteFunc(slices.Clone(p.processes), func(l *process) bool { return !l.gone() }) {
		errs = append(errs, l.crash)
	}
	return errs
}

// missedIfEnded has a fault miss a process that has ended.
func missedIfEnded(err error) error {
	if errors.Is(err, ErrProcessEnded) {
		return fmt.Errorf("%w: %w", fault.ErrMissed, err)
	}
	return err
}
