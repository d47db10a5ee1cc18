package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/pgproxy"
)

// seat is one worker across its successive processes. Its methods may be called concurrently.
type seat struct {
	spec     worker.Spec
	log      string // file that gets the processes' standard error
	bounds   bounds
	etcd     []*netfault.Link // to the members
	postgres *pgproxy.Proxy
	trace    *history.Trace

	stalling sync.Mutex // while the world is being stopped, or is stopped
	trapping sync.Mutex // while a trap is set

	mu        sync.Mutex
	processes []*process // the last one is the present one
	loaded    bool       // it is under load, and so is a process that replaces it
}

// newSeat makes a worker with links to the servers, without a process.
func (s *environment) newSeat(n int) (_ *seat, err error) {
	name := fmt.Sprintf("w%d", n)
	w := &seat{trace: s.trace, bounds: s.bounds, log: filepath.Join(s.dir, name+".log"), spec: worker.Spec{
		Worker: name, Number: n, Workload: s.Workload.Name(), Group: s.Group, Servers: worker.Servers{TTL: s.ttl()}, Prefix: s.prefix,
		Seed: s.Seed, Unhindered: s.Scenario.unhindered, Within: s.bounds.operation,
	}}
	if s.service != nil {
		w.spec.Service = s.service.Addresses()
	}
	for _, endpoint := range s.etcd.Endpoints() {
		l, err := netfault.New(strings.TrimPrefix(endpoint, "http://"))
		if err != nil {
			return nil, err
		}
		s.onTearDown(func(context.Context) error { return l.Close() })
		w.etcd, w.spec.Etcd = append(w.etcd, l), append(w.spec.Etcd, "http://"+l.Addr())
	}
	if w.postgres, err = pgproxy.New(s.dsn); err != nil {
		return nil, err
	}
	s.onTearDown(func(context.Context) error { return w.postgres.Close() })
	w.spec.Postgres = w.postgres.DSN()
	return w, nil
}

// name is the worker's, which its sessions in Postgres have too (application_name).
func (w *seat) name() string { return w.spec.Worker }

// start starts a process unless one runs, and returns when it is ready for commands. Until
// then faults don't reach the process.
func (w *seat) start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.processes); n > 0 && !w.processes[n-1].gone() {
		return nil
	}
	ready := w.trace.Listen(func(e history.Event) bool {
		return e.Process == w.name() && (e.Kind == history.Note && e.Name == worker.NoteReady || e.Kind == history.Ends)
	})
	p, err := w.startProcess()
	if err != nil {
		return fmt.Errorf("chaos: starting %s: %w", w.name(), err)
	}
	w.processes = append(w.processes, p)
	e, err := ready.Next(ctx)
	if err == nil && e.Kind == history.Ends {
		err = errors.New(p.lastOutput())
	}
	if err != nil {
		return fmt.Errorf("chaos: %s did not start: %w", w.name(), errors.Join(err, p.kill()))
	}
	if w.loaded {
		return p.send(worker.Command{Load: true})
	}
	return nil
}

// present is the present process, which may have ended.
func (w *seat) present() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.processes[len(w.processes)-1]
}

// running is the present process. It fails with errMissed if that has ended.
func (w *seat) running() (*process, error) {
	p := w.present()
	if p.gone() {
		return nil, fmt.Errorf("%w: %s has ended", errMissed, w.name())
	}
	return p, nil
}

func (w *seat) command(c worker.Command) error {
	w.mu.Lock()
	w.loaded = (w.loaded || c.Load) && !c.Quiet
	p := w.processes[len(w.processes)-1]
	w.mu.Unlock()
	return p.send(c)
}

// pause stops the process by SIGSTOP. It fails with errMissed if the process has ended, or is
// stopped already: one resume would end both stops.
func (w *seat) pause(ctx context.Context) error {
	p, err := w.running()
	if err != nil {
		return err
	}
	if stopped, err := pause.Stopped(p.child.Pid()); stopped && err == nil {
		return fmt.Errorf("%w: %s is stopped already", errMissed, w.name())
	}
	if err := p.child.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := p.awaitStopped(ctx); err != nil {
		return errors.Join(err, p.child.Resume())
	}
	return nil
}

// resume lets a stopped process go on.
func (w *seat) resume(context.Context) error { return w.present().child.Resume() }

func (w *seat) crash() error {
	p, err := w.running()
	if err != nil {
		return err
	}
	return p.kill()
}

// stopTheWorld has the process's Go runtime stop the world. It fails with errMissed if that is stopped
// already.
func (w *seat) stopTheWorld(ctx context.Context) (resume func(context.Context) error, err error) {
	if !w.stalling.TryLock() {
		return nil, fmt.Errorf("%w: the world of %s is stopped already", errMissed, w.name())
	}
	p := w.present()
	if err := p.send(worker.Command{Stall: true}); err != nil {
		w.stalling.Unlock()
		return nil, err
	}
	stop, err := p.world.Next(ctx)
	if err != nil {
		go func() { // a stop that comes late is resumed at once; there is none if the process ends
			defer w.stalling.Unlock()
			if stop, err := p.world.Next(context.Background()); err == nil {
				_ = stop.Resume()
			}
		}()
		return nil, fmt.Errorf("%w: %s: %w", errMissed, w.name(), err)
	}
	return func(context.Context) error {
		defer w.stalling.Unlock()
		return stop.Resume()
	}, nil
}

// stop asks the present process to end, and kills it if that takes too long.
func (w *seat) stop() error {
	if p := w.present(); !p.gone() {
		return p.close(w.bounds.close)
	}
	return nil
}

// kill kills the present process.
func (w *seat) kill() error {
	if p := w.present(); !p.gone() {
		return p.kill()
	}
	return nil
}

// crashes returns why those processes ended that nobody had asked to or killed.
func (w *seat) crashes() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if p.gone() {
			err = errors.Join(err, p.crash)
		}
	}
	return err
}

// trap is a point at which a process is to stop, or to die. A process has one at a time.
type trap struct {
	*seat
	process *process
	command worker.Command
	events  *history.Listener
}

// setTrap has the process stop or die when it reaches a point; of awaits (worker.PointAwait) it skips the
// first skip. The trap is set before any later command is read. The caller must call sprung.
func (w *seat) setTrap(point string, skip int, then string) (*trap, error) {
	if !w.trapping.TryLock() {
		return nil, fmt.Errorf("%w: %s has a trap already", errMissed, w.name())
	}
	c := worker.Command{Arm: point, Skip: skip, Then: then}
	t := &trap{w, w.present(), c, w.trace.Listen(func(e history.Event) bool {
		return e.Process == w.name() && (e.Kind == history.Reached || e.Kind == history.Ends || e.Kind == history.Note && e.Name == worker.NoteDisarmed)
	})}
	if err := t.process.send(c); err != nil {
		w.trapping.Unlock()
		return nil, err
	}
	return t, nil
}

// sprung waits until the process has stopped, or died, at the point. If ctx, or the operation that is to
// spring it (by, which may be nil), ends first, sprung removes the trap, and fails with errMissed unless the
// point was reached before that.
func (t *trap) sprung(ctx context.Context, by *operation) error {
	defer t.trapping.Unlock()
	late, cancelLate := context.WithTimeoutCause(context.WithoutCancel(ctx), revertBound, fmt.Errorf("%w: %s doesn't answer", errHangs, t.name()))
	defer cancelLate()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if by != nil {
		go func() {
			defer cancel()
			_, _ = by.wait(ctx)
		}()
	}
	e, err := t.events.Next(ctx)
	if err != nil { // which settles it: it is disarmed, or the point was reached first
		if err := t.process.send(worker.Command{Disarm: true}); err != nil {
			return err
		}
		e, err = t.events.Next(late)
	}
	switch {
	case err != nil:
		return err
	case e.Kind != history.Reached:
		return fmt.Errorf("%w: %s did not reach %q", errMissed, t.name(), t.command.Arm)
	case t.command.Then == history.ThenKill:
		<-t.process.ended
		return nil
	}
	return t.process.awaitStopped(late) // it is about to stop
}

// arm sets a trap, and returns once it has sprung.
func (w *seat) arm(ctx context.Context, point, then string) error {
	t, err := w.setTrap(point, 0, then)
	if err != nil {
		return err
	}
	return t.sprung(ctx, nil)
}

// operation is an operation that a worker was asked for.
type operation struct {
	op     worker.Op
	within time.Duration
	done   chan struct{} // closed when it, or its process, has ended
	end    history.Event // how it ended; set before done is closed
}

// operate asks a worker for an operation. An op without an id or a seed is given one.
func (s *environment) operate(number int, op worker.Op) (*operation, error) {
	return s.ask(number, op, worker.Command{Within: s.bounds.operation})
}

// ask is operate with another time within which the operation's context ends, or for an operation
// that is called again.
func (s *environment) ask(number int, op worker.Op, c worker.Command) (*operation, error) {
	w := s.seat(number)
	n := s.operated.Add(1)
	if op.ID == "" {
		op.ID = fmt.Sprintf("%s.op%d", w.name(), n)
	}
	if op.Seed == 0 {
		op.Seed = s.Seed
	}
	events := s.trace.Listen(func(e history.Event) bool {
		ends := e.Kind == history.OK || e.Kind == history.Fail || e.Kind == history.Unknown || e.Kind == history.Note && e.Name == worker.NoteCalledAgain
		return ends && e.Op == op.ID || e.Kind == history.Ends && e.Process == w.name()
	})
	c.Operate = &op
	if err := w.command(c); err != nil {
		return nil, err
	}
	asked := &operation{op: op, within: c.Within + s.bounds.grace, done: make(chan struct{})}
	go func() {
		asked.end, _ = events.Next(context.Background()) // every process ends before its run does
		close(asked.done)
	}()
	return asked, nil
}

// wait waits for the end of the operation and returns how it ended. It fails if the
// process ended first, or if the operation hangs.
func (o *operation) wait(ctx context.Context) (history.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.within, fmt.Errorf("%w: it still runs after %v", errHangs, o.within))
	defer cancel()
	select {
	case <-o.done:
	case <-ctx.Done():
		return history.Event{}, fmt.Errorf("chaos: waiting for operation %s: %w", o.op.ID, context.Cause(ctx))
	}
	if o.end.Kind == history.Ends {
		return o.end, fmt.Errorf("%w before operation %s: %s", errProcessEnded, o.op.ID, o.end.Error)
	}
	return o.end, nil
}

// finish has a worker do an operation, and returns how it ended.
func (s *environment) finish(ctx context.Context, number int, op worker.Op) (history.Event, error) {
	o, err := s.operate(number, op)
	if err != nil {
		return history.Event{}, err
	}
	return o.wait(ctx)
}
