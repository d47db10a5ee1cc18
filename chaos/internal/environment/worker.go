package environment

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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

// Worker is one worker as its run sees it, across its successive processes. It is a
// fault.Worker. Its methods may be called concurrently.
type Worker struct {
	spec       worker.Spec
	log        string // file that gets the processes' standard error
	closeBound time.Duration
	etcd       []*netfault.Link
	postgres   *netfault.Link
	commits    *pgproxy.Proxy
	trace      *history.Trace

	stalling sync.Mutex // while the world is being stopped, or is stopped
	trapping sync.Mutex // while a trap is set

	mu        sync.Mutex
	processes []*process // the last one is the present one
	loaded    bool       // it is under load, and so is a process that replaces it
}

// Name implements fault.Worker.
func (p *Worker) Name() string { return p.spec.Worker }

// ToEtcd implements fault.Worker.
func (p *Worker) ToEtcd() []*netfault.Link { return p.etcd }

// ToPostgres implements fault.Worker.
func (p *Worker) ToPostgres() *netfault.Link { return p.postgres }

// Commits implements fault.Worker.
func (p *Worker) Commits() *pgproxy.Proxy { return p.commits }

// Start implements fault.Worker: it returns when the process is ready for commands. Until
// then faults don't reach the process.
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
	l, err := p.startProcess()
	if err != nil {
		return fmt.Errorf("chaos: starting %s: %w", p.Name(), err)
	}
	p.processes = append(p.processes, l)
	e, err := ready.Next(ctx)
	if err == nil && e.Kind == history.Ends {
		err = errors.New(l.lastOutput())
	}
	if err != nil {
		return fmt.Errorf("chaos: %s did not start: %w", p.Name(), err)
	}
	if p.loaded {
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

// Command sends a command to the present process. It fails with ErrProcessEnded if the
// process has ended.
func (p *Worker) Command(c worker.Command) error {
	p.mu.Lock()
	p.loaded = (p.loaded || c.Load) && !c.Quiet
	l := p.processes[len(p.processes)-1]
	p.mu.Unlock()
	return l.send(c)
}

// Signal implements fault.Worker. It fails with fault.ErrMissed if the process has ended,
// or if it is stopped already and sig is SIGSTOP: one Resume would end both stops.
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

// Kill implements fault.Worker. It returns when all the process's events are in the trace.
func (p *Worker) Kill() error {
	l := p.present()
	if l.gone() {
		return fmt.Errorf("%w: %s has ended already", fault.ErrMissed, p.Name())
	}
	return l.kill()
}

// AwaitStopped implements fault.Worker.
func (p *Worker) AwaitStopped(ctx context.Context) error { return p.present().awaitStopped(ctx) }

// StopTheWorld implements fault.Worker. It fails with fault.ErrMissed if the world is
// stopped already.
func (p *Worker) StopTheWorld(ctx context.Context) (func(context.Context) error, error) {
	if !p.stalling.TryLock() {
		return nil, fmt.Errorf("%w: the world of %s is stopped already", fault.ErrMissed, p.Name())
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

// resumeLate waits for a stop that its caller no longer waits for, and resumes the world at
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

// Stop asks the present process to end, and kills it if that takes too long.
func (p *Worker) Stop() error {
	l := p.present()
	if l == nil || l.gone() {
		return nil
	}
	return l.close(p.closeBound)
}

// kill kills the present process, if there is one.
func (p *Worker) kill() error {
	l := p.present()
	if l == nil || l.gone() {
		return nil
	}
	return l.kill()
}

// crashes returns why those of the worker's processes ended that ended by themselves.
func (p *Worker) crashes() (errs []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range slices.DeleteFunc(slices.Clone(p.processes), func(l *process) bool { return !l.gone() }) {
		errs = append(errs, l.crash)
	}
	return errs
}

// missedIfEnded turns ErrProcessEnded into fault.ErrMissed.
func missedIfEnded(err error) error {
	if errors.Is(err, ErrProcessEnded) {
		return fmt.Errorf("%w: %w", fault.ErrMissed, err)
	}
	return err
}

// StartWorkers starts the worker processes, each with its own links.
func (s *Environment) StartWorkers(ctx context.Context) error {
	if s.cfg.Unhindered {
		if err := s.createAppRole(ctx); err != nil {
			return err
		}
	}
	var service []string
	if s.service != nil {
		service = s.service.Addresses()
	}
	for n := range s.cfg.Workers {
		p := &Worker{trace: s.cfg.Trace, closeBound: s.cfg.Bounds.Close, log: filepath.Join(s.cfg.Dir, fmt.Sprintf("w%d.log", n)), spec: worker.Spec{
			Worker: fmt.Sprintf("w%d", n), Number: n, Workload: s.cfg.Workload.Name(), Group: s.cfg.Group, Service: service, Prefix: s.prefix,
			TTL: s.cfg.TTL, Seed: s.cfg.Seed, Unhindered: s.cfg.Unhindered, Within: s.cfg.Bounds.Operation,
		}}
		if err := s.link(p); err != nil {
			return err
		}
		s.workers = append(s.workers, p)
		if err := p.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// link makes the links of a worker to the servers.
func (s *Environment) link(p *Worker) (err error) {
	for _, endpoint := range s.etcd.Endpoints() {
		l, err := netfault.New(strings.TrimPrefix(endpoint, "http://"))
		if err != nil {
			return err
		}
		s.onTearDown(func(context.Context) error { return l.Close() })
		p.etcd = append(p.etcd, l)
		p.spec.Etcd = append(p.spec.Etcd, "http://"+l.Addr())
	}
	if p.commits, err = pgproxy.New(s.dsn); err != nil {
		return err
	}
	s.onTearDown(func(context.Context) error { return p.commits.Close() })
	if p.postgres, err = netfault.New(p.commits.Addr()); err != nil {
		return err
	}
	s.onTearDown(func(context.Context) error { return p.postgres.Close() })
	p.spec.Postgres = strings.Replace(p.commits.DSN(), p.commits.Addr(), p.postgres.Addr(), 1)
	return nil
}

// StopWorkers asks the worker processes to end.
func (s *Environment) StopWorkers() error { return s.each((*Worker).Stop) }

// KillWorkers kills the worker processes.
func (s *Environment) KillWorkers() error { return s.each((*Worker).kill) }

// each does something with all workers at once.
func (s *Environment) each(do func(*Worker) error) error {
	errs := make([]error, len(s.workers))
	var all sync.WaitGroup
	for i, p := range s.workers {
		all.Go(func() { errs[i] = do(p) })
	}
	all.Wait()
	return errors.Join(errs...)
}
