package environment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

// ErrProcessEnded: the worker process that a command was for has ended.
var ErrProcessEnded = errors.New("chaos: the worker process has ended")

// process is one of the successive processes of a worker. Its methods may be called
// concurrently.
type process struct {
	name  string
	log   string // file that gets its standard error
	child *child.Process
	world *pause.WorldStopper
	ended chan struct{} // closed when it has ended and all its events are in the trace
	crash error         // why it ended, if the run neither stopped nor killed it; set before ended is closed

	stopping atomic.Bool // it was asked to end
	killed   atomic.Bool // it was killed

	sending sync.Mutex
	in      *os.File
}

// startProcess starts a process. The process records when it is ready for commands.
func (p *Worker) startProcess() (*process, error) {
	text, err := json.Marshal(p.spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	world, err := pause.NewWorldStopper()
	if err != nil {
		return nil, err
	}
	defer world.File().Close() // the child has its own
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, world.Close())
	}
	defer outEnd.Close() // the child has its own
	inEnd, in, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, world.Close(), out.Close())
	}
	defer inEnd.Close() // the child has its own
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), worker.SpecVariable+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inEnd, outEnd, log
	cmd.ExtraFiles = []*os.File{world.File()}
	child, err := child.Start(cmd)
	if err != nil {
		return nil, errors.Join(err, world.Close(), out.Close(), in.Close())
	}
	l := &process{name: p.Name(), log: p.log, child: child, world: world, ended: make(chan struct{}), in: in}
	p.trace.Record(history.Event{Kind: history.Starts, Process: p.Name()})
	go l.follow(out, p.trace)
	return l, nil
}

// follow adds the process's events to the trace, until it has ended.
func (l *process) follow(out *os.File, trace *history.Trace) {
	defer close(l.ended)
	defer l.in.Close()
	defer l.world.Close()
	err := history.Read(out, func(e history.Event) error {
		if e.Kind == history.Reached && e.Name == history.ThenKill {
			l.killed.Store(true)
		}
		trace.Add(e)
		return nil
	})
	_ = out.Close() // after a line that is no event, nothing more is read
	state := l.child.Wait()
	e := history.Event{Kind: history.Ends, Process: l.name}
	if !state.Success() || !l.stopping.Load() {
		e.Error = state.String()
	}
	if err != nil {
		e.Error = err.Error()
	}
	if e.Error != "" && !(l.killed.Load() && wasKilled(state)) {
		l.crash = fmt.Errorf("chaos: %s ended by itself: %s; its last output: %s", l.name, e.Error, l.lastOutput())
	}
	trace.Record(e)
}

func wasKilled(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// gone reports whether the process has ended.
func (l *process) gone() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// commandBound is for how long a process may leave its pipe of commands full; the pipe has
// room for hundreds.
const commandBound = 30 * time.Second

// send sends the process a command. It fails with ErrProcessEnded if the process has ended.
func (l *process) send(c worker.Command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	l.sending.Lock()
	defer l.sending.Unlock()
	if err := l.in.SetWriteDeadline(time.Now().Add(commandBound)); err != nil {
		return fmt.Errorf("%w: %s", ErrProcessEnded, l.name)
	}
	_, err = l.in.Write(append(line, '\n'))
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%w: %s", ErrProcessEnded, l.name)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w: %s reads no commands", ErrHangs, l.name)
	}
	return err
}

// awaitStopped returns once the kernel shows the process stopped by a signal. It fails with
// fault.ErrMissed if the process ends, or isn't stopped before ctx ends.
func (l *process) awaitStopped(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		stopped, err := pause.Stopped(l.child.Pid())
		if stopped && !l.gone() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %s has ended: %w", fault.ErrMissed, l.name, err)
		}
		select {
		case <-tick.C:
		case <-l.ended:
			return fmt.Errorf("%w: %s has ended", fault.ErrMissed, l.name)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s was not stopped: %w", fault.ErrMissed, l.name, context.Cause(ctx))
		}
	}
}

// kill ends the process by SIGKILL, and returns when all its events are in the trace.
func (l *process) kill() error {
	l.killed.Store(true)
	err := l.child.Kill()
	<-l.ended
	return err
}

// close asks the process to end, and kills it if that takes longer than within.
func (l *process) close(within time.Duration) error {
	l.stopping.Store(true)
	err := l.send(worker.Command{Close: true})
	if errors.Is(err, ErrProcessEnded) {
		err = nil
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-l.ended:
		return err
	case <-late.C:
	}
	return errors.Join(err, l.kill(), fmt.Errorf("%w: %s did not end within %v of being asked to, and was killed; its last output: %s", ErrHangs, l.name, within, l.lastOutput()))
}

// lastOutput is the end of what the worker's processes have written to standard error.
func (l *process) lastOutput() string {
	text, err := os.ReadFile(l.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-most):])
}
