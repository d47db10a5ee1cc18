package run

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

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv/child"
)

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

// If startProcess fails the run does, and what it has opened is closed when it is collected.
func (w *seat) startProcess() (*process, error) {
	spec, err := json.Marshal(w.spec)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(w.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own, as of the other ends
	world, err := pause.NewWorldStopper()
	if err != nil {
		return nil, err
	}
	defer world.File().Close()
	out, outEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer outEnd.Close()
	inEnd, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inEnd.Close()
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), worker.SpecVariable+"="+string(spec))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inEnd, outEnd, log
	cmd.ExtraFiles = []*os.File{world.File()}
	child, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	p := &process{name: w.name(), log: w.log, child: child, world: world, ended: make(chan struct{}), in: in}
	w.trace.Record(history.Event{Kind: history.Starts, Process: p.name})
	go p.follow(out, w.trace)
	return p, nil
}

func (p *process) follow(out *os.File, trace *history.Trace) {
	defer close(p.ended)
	defer p.in.Close()
	defer p.world.Close()
	err := history.Read(out, func(e history.Event) error {
		if e.Kind == history.Reached && e.Name == history.ThenKill {
			p.killed.Store(true)
		}
		trace.Add(e)
		return nil
	})
	_ = out.Close() // after a line that is no event, nothing more is read
	state := p.child.Wait()
	e := history.Event{Kind: history.Ends, Process: p.name, Error: text(err)}
	if e.Error == "" && !(state.Success() && p.stopping.Load()) {
		e.Error = state.String()
	}
	status, _ := state.Sys().(syscall.WaitStatus)
	wasKilled := p.killed.Load() && status.Signaled() && status.Signal() == syscall.SIGKILL
	if e.Error != "" && !wasKilled {
		p.crash = fmt.Errorf("chaos: %s ended by itself: %s; its last output: %s", p.name, e.Error, p.lastOutput())
	}
	trace.Record(e)
}

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// send fails with errProcessEnded if the process has ended. Its pipe has room for hundreds of commands, also
// while it is stopped.
func (p *process) send(c worker.Command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	_, err = p.in.Write(append(line, '\n'))
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("%w: %s", errProcessEnded, p.name)
	}
	return err
}

// awaitStopped returns once the kernel shows the process stopped by a signal. It fails with
// errMissed if the process ends, or isn't stopped before ctx ends.
func (p *process) awaitStopped(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		stopped, err := pause.Stopped(p.child.Pid())
		if stopped && !p.gone() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %s has ended: %w", errMissed, p.name, err)
		}
		select {
		case <-tick.C:
		case <-p.ended:
			return fmt.Errorf("%w: %s has ended", errMissed, p.name)
		case <-ctx.Done():
			return fmt.Errorf("%w: %s was not stopped: %w", errMissed, p.name, context.Cause(ctx))
		}
	}
}

func (p *process) kill() error {
	p.killed.Store(true)
	err := p.child.Kill()
	<-p.ended
	return err
}

func (p *process) close(within time.Duration) error {
	p.stopping.Store(true)
	err := p.send(worker.Command{Close: true})
	if errors.Is(err, errProcessEnded) {
		err = nil
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-p.ended:
		return err
	case <-late.C:
	}
	return errors.Join(err, p.kill(), fmt.Errorf("%w: %s did not end within %v of being asked to, and was killed; its last output: %s", errHangs, p.name, within, p.lastOutput()))
}

func (p *process) lastOutput() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-most):])
}
