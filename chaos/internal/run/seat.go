package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/test/netfault"
	"github.com/fencekit/fencekit/internal/test/pause"
	"github.com/fencekit/fencekit/internal/test/pgproxy"
	"github.com/fencekit/fencekit/internal/test/testenv/child"
)

// seat is one worker across its successive processes. What concerns its process is for one goroutine at a time, or
// one fault (faulty).
type seat struct {
	spec     worker.Spec
	log      string // file that gets the processes' standard error
	bounds   bounds
	etcd     []*netfault.Link // to the members
	postgres *pgproxy.Proxy
	trace    *history.Trace

	faulty sync.Mutex // while a fault of its process is in effect

	*process       // the present one
	loaded   bool  // it is under load, and so is a process that replaces it
	crashed  error // why earlier processes ended by themselves
}

type process struct {
	child *child.Process
	in    *os.File
	ended chan struct{} // closed when it has ended and all its events are in the trace
	crash error         // why it ended, if the run neither stopped nor killed it; set before ended is closed

	stopping, killed atomic.Bool // by the run
}

func (s *environment) newSeat(n int) (_ *seat, err error) {
	name := fmt.Sprintf("w%d", n)
	w := &seat{trace: s.trace, bounds: s.bounds, log: filepath.Join(s.dir, name+".log"), spec: worker.Spec{
		Worker: name, Number: n, Workload: s.Workload.Name(), Group: s.Group, Servers: worker.Servers{TTL: s.ttl()}, Prefix: s.prefix,
		Seed: s.Seed, Unhindered: s.Scenario.unhindered, Beside: s.Scenario.beside, Within: s.bounds.operation,
	}}
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

// start starts a process unless one runs, and returns when it is ready for commands.
func (w *seat) start(ctx context.Context) error {
	if w.process != nil {
		if !w.gone() {
			return nil
		}
		w.crashed = errors.Join(w.crashed, w.crash)
	}
	ready := w.trace.Listen(func(e history.Event) bool {
		return e.Process == w.name() && (e.Kind == history.Note && e.Name == worker.NoteReady || e.Kind == history.Ends)
	})
	if err := w.startProcess(); err != nil {
		return fmt.Errorf("chaos: starting %s: %w", w.name(), err)
	}
	e, err := ready(ctx)
	if err == nil && e.Kind == history.Ends {
		err = errors.New(w.lastOutput())
	}
	if err != nil {
		return fmt.Errorf("chaos: %s did not start: %w", w.name(), errors.Join(err, w.kill()))
	}
	if w.loaded {
		return w.send(worker.Command{Load: true})
	}
	return nil
}

// If startProcess fails the run does, and what it has opened is closed when it is collected.
func (w *seat) startProcess() error {
	spec, err := json.Marshal(w.spec)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own, as of the other ends
	out, outEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer outEnd.Close()
	inEnd, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer inEnd.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), worker.SpecVariable+"="+string(spec))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inEnd, outEnd, log
	child, err := child.Start(cmd)
	if err != nil {
		return err
	}
	w.process = &process{child: child, ended: make(chan struct{}), in: in}
	w.trace.Record(history.Event{Kind: history.Starts, Process: w.name()})
	go w.follow(w.process, out)
	return nil
}

func (w *seat) follow(p *process, out *os.File) {
	defer close(p.ended)
	defer p.in.Close()
	err := history.Read(out, func(e history.Event) {
		if e.Kind == history.Reached && e.Name == history.ThenKill {
			p.killed.Store(true)
		}
		w.trace.Add(e)
	})
	_ = out.Close() // after a line that is no event, nothing more is read
	state := p.child.Wait()
	e := history.Event{Kind: history.Ends, Process: w.name(), Error: history.Text(err)}
	if e.Error == "" && !(state.Success() && p.stopping.Load()) {
		e.Error = state.String()
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	wasKilled := p.killed.Load() && status.Signaled() && status.Signal() == syscall.SIGKILL
	if e.Error != "" && !wasKilled {
		p.crash = fmt.Errorf("chaos: %s ended by itself: %s; its last output: %s", w.name(), e.Error, w.lastOutput())
	}
	w.trace.Record(e)
}

func (w *seat) gone() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

func (w *seat) lastOutput() string {
	text, err := os.ReadFile(w.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-most):])
}

// send fails with errProcessEnded if the process has ended. Its pipe has room for hundreds of commands, also while
// it is stopped.
func (w *seat) send(c worker.Command) error {
	w.loaded = (w.loaded || c.Load) && !c.Quiet
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = w.in.Write(append(line, '\n'))
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%w: %s", errProcessEnded, w.name())
	}
	return err
}

// stop asks the process to end, and kills it if that takes too long.
func (w *seat) stop() error {
	if w.gone() {
		return nil
	}
	w.stopping.Store(true)
	if err := w.send(worker.Command{Close: true}); err != nil && !errors.Is(err, errProcessEnded) {
		return err
	}
	select {
	case <-w.ended:
		return nil
	case <-time.After(w.bounds.close):
	}
	return errors.Join(w.kill(), fmt.Errorf("%w: %s did not end within %v of being asked to, and was killed; its last output: %s",
		errHangs, w.name(), w.bounds.close, w.lastOutput()))
}

func (w *seat) kill() error {
	if w.gone() {
		return nil
	}
	w.killed.Store(true)
	err := w.child.Kill()
	<-w.ended
	return err
}

// crashes returns why those processes ended that nobody had asked to or killed.
func (w *seat) crashes() error {
	if w.gone() {
		return errors.Join(w.crashed, w.crash)
	}
	return w.crashed
}

// awaitStopped returns once the kernel shows the process stopped by a signal that was sent.
func (w *seat) awaitStopped() error {
	for {
		if stopped, err := pause.Stopped(w.child.Pid()); stopped && err == nil {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-w.ended:
			return fmt.Errorf("%w: %s has ended", errMissed, w.name())
		}
	}
}

func (w *seat) resume(context.Context) error { return w.child.Resume() }

// trap has the process stop or die at a point; of awaits (worker.PointAwait) it skips the first skip. sprung waits
// for that. If ctx ends first it removes the trap, and fails with errMissed unless the point was reached.
func (w *seat) trap(point string, skip int, then string) (sprung func(ctx context.Context) error, err error) {
	events := w.trace.Listen(func(e history.Event) bool {
		return e.Process == w.name() && (e.Kind == history.Reached || e.Kind == history.Ends || e.Kind == history.Note && e.Name == worker.NoteDisarmed)
	})
	if err := w.send(worker.Command{Arm: point, Skip: skip, Then: then}); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		e, err := events(ctx)
		if err != nil { // which settles it: it is disarmed, or the point was reached first
			if err := w.send(worker.Command{Disarm: true}); err != nil {
				return err
			}
			late, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), revertBound, fmt.Errorf("%w: %s doesn't answer", errHangs, w.name()))
			defer cancel()
			if e, err = events(late); err != nil {
				return err
			}
		}
		switch {
		case e.Kind != history.Reached:
			return fmt.Errorf("%w: %s did not reach %q", errMissed, w.name(), point)
		case then == history.ThenKill:
			<-w.ended
			return nil
		}
		return w.awaitStopped()
	}, nil
}

func (w *seat) arm(ctx context.Context, point, then string) error {
	sprung, err := w.trap(point, 0, then)
	if err != nil {
		return err
	}
	return sprung(ctx)
}

type operation struct {
	id     string
	number int // of the worker
	within time.Duration
	done   chan struct{} // closed when it, or its process, has ended
	end    history.Event // how it ended; set before done is closed
}

// operate asks a worker for an operation: c may say within which time, or that it is called again.
func (s *environment) operate(number int, op worker.Op, c worker.Command) (*operation, error) {
	w := s.seat(number)
	s.operated++
	if op.ID == "" {
		op.ID = fmt.Sprintf("%s.op%d", w.name(), s.operated)
	}
	if op.Seed == 0 {
		op.Seed = s.Seed
	}
	if c.Within == 0 {
		c.Within = s.bounds.operation
	}
	events := s.trace.Listen(func(e history.Event) bool {
		ends := e.Kind == history.OK || e.Kind == history.Fail || e.Kind == history.Unknown || e.Kind == history.Note && e.Name == worker.NoteCalledAgain
		return ends && e.Op == op.ID || e.Kind == history.Ends && e.Process == w.name()
	})
	c.Operate = &op
	if err := w.send(c); err != nil {
		return nil, err
	}
	o := &operation{id: op.ID, number: number, within: c.Within + s.bounds.grace, done: make(chan struct{})}
	go func() {
		o.end, _ = events(context.Background()) // every process ends before its run does
		close(o.done)
	}()
	return o, nil
}

// wait fails if the process ended first, or if the operation hangs.
func (o *operation) wait(ctx context.Context) (history.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.within, fmt.Errorf("%w: it still runs after %v", errHangs, o.within))
	defer cancel()
	select {
	case <-o.done:
	case <-ctx.Done():
		return history.Event{}, fmt.Errorf("chaos: waiting for operation %s: %w", o.id, context.Cause(ctx))
	}
	if o.end.Kind == history.Ends {
		return o.end, fmt.Errorf("%w before operation %s: %s", errProcessEnded, o.id, o.end.Error)
	}
	return o.end, nil
}

func (s *environment) finish(ctx context.Context, number int, op worker.Op, c worker.Command) (history.Event, error) {
	o, err := s.operate(number, op, c)
	if err != nil {
		return history.Event{}, err
	}
	return o.wait(ctx)
}

// operateTo has a worker do an operation until its process stops or dies at a point. sprung is false if the
// operation or ctx ends first.
func (s *environment) operateTo(ctx context.Context, number int, op worker.Op, point string, skip int, then string) (o *operation, sprung bool, err error) {
	atPoint, err := s.seat(number).trap(point, skip, then)
	if err != nil {
		return nil, false, err
	}
	if o, err = s.operate(number, op, worker.Command{}); err != nil {
		return nil, false, err
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = o.wait(bounded)
	}()
	if err := atPoint(bounded); errors.Is(err, errMissed) {
		return o, false, nil
	} else if err != nil {
		return o, false, err
	}
	return o, true, nil
}
