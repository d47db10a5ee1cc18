package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/chaos/fault"
	"github.com/fencekit/fencekit/chaos/history"
	"github.com/fencekit/fencekit/internal/netfault"
	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/pgproxy"
	"github.com/fencekit/fencekit/internal/testenv"
)

// process is one worker as its run sees it, through all the processes that it is
// in turn. It is a fault.Worker. Its methods may be called concurrently.
type process struct {
	spec     spec
	log      string // file that gets the processes' standard error
	etcd     []*netfault.Link
	postgres *netfault.Link
	commits  *pgproxy.Proxy
	story    *story

	stalling sync.Mutex // while the world is being stopped, or stands

	mu    sync.Mutex
	child *testenv.Child
	in    io.WriteCloser
	world *pause.WorldStopper // of the present process
	ended chan struct{}       // closed when the present process is gone and all it told has been taken
	busy  bool                // it works by itself, and so does whoever takes its place
}

// Name implements fault.Worker.
func (p *process) Name() string { return p.spec.Worker }

// ToEtcd implements fault.Worker.
func (p *process) ToEtcd() []*netfault.Link { return p.etcd }

// ToPostgres implements fault.Worker.
func (p *process) ToPostgres() *netfault.Link { return p.postgres }

// Commits implements fault.Worker.
func (p *process) Commits() *pgproxy.Proxy { return p.commits }

// Start implements fault.Worker: it returns when the process is ready for commands.
func (p *process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.child != nil && !p.gone() {
		return nil
	}
	ready := p.story.listen(func(e history.Event) bool {
		return e.Process == p.Name() && (e.Kind == history.Note && e.Name == noteReady || e.Kind == history.Ends)
	})
	defer ready.stop()
	if err := p.start(); err != nil {
		return fmt.Errorf("chaos: starting %s: %w", p.Name(), err)
	}
	e, err := ready.next(ctx)
	if err == nil && e.Kind == history.Ends {
		err = errors.New(p.lastWords())
	}
	if err != nil {
		return fmt.Errorf("chaos: %s did not come up: %w", p.Name(), err)
	}
	if p.busy {
		return p.send(command{Load: true})
	}
	return nil
}

func (p *process) start() (err error) {
	text, err := json.Marshal(p.spec)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	if p.world, err = pause.NewWorldStopper(); err != nil {
		return err
	}
	defer p.world.File().Close() // the child has its own
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerVar+"="+string(text))
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{p.world.File()}
	out, outEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	inEnd, in, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stdin = outEnd, inEnd
	p.child, err = testenv.StartChild(cmd)
	_ = outEnd.Close() // the child has its own
	_ = inEnd.Close()
	if err != nil {
		_, _ = out.Close(), in.Close()
		return err
	}
	p.in, p.ended = in, make(chan struct{})
	p.story.tell(history.Event{Kind: history.Starts, Process: p.Name()})
	go p.read(out, p.child, p.world, p.ended)
	return nil
}

// read takes what a process tells, until it has ended.
func (p *process) read(out *os.File, child *testenv.Child, world *pause.WorldStopper, ended chan<- struct{}) {
	defer close(ended)
	defer world.Close()
	defer out.Close()
	err := history.Read(bufio.NewReader(out), func(e history.Event) error { p.story.take(e); return nil })
	state := child.Wait()
	e := history.Event{Kind: history.Ends, Process: p.Name()}
	if !state.Success() {
		e.Error = state.String()
	}
	if err != nil {
		e.Error = err.Error()
	}
	p.story.tell(e)
}

// gone reports whether the present process has ended.
func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// command tells the present process to do something. One that has ended does
// nothing.
func (p *process) command(c command) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = (p.busy || c.Load) && !c.Quiet
	return p.send(c)
}

// send is command with p.mu locked.
func (p *process) send(c command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

// Signal implements fault.Worker.
func (p *process) Signal(sig syscall.Signal) error { return p.present().Signal(sig) }

// Resume implements fault.Worker.
func (p *process) Resume() error { return p.present().Resume() }

// Kill implements fault.Worker. It returns when all that the process told has been
// taken.
func (p *process) Kill() error {
	p.mu.Lock()
	child, ended := p.child, p.ended
	p.mu.Unlock()
	err := child.Kill()
	<-ended
	return err
}

func (p *process) present() *testenv.Child {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.child
}

// AwaitStopped implements fault.Worker.
func (p *process) AwaitStopped(ctx context.Context) error {
	child := p.present()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		stopped, err := pause.Stopped(child.Pid())
		if stopped {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %s has ended: %w", fault.ErrMissed, p.Name(), err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// StopTheWorld implements fault.Worker. One stop at a time: a world that stands
// can't be stopped.
func (p *process) StopTheWorld(ctx context.Context) (func(context.Context) error, error) {
	if !p.stalling.TryLock() {
		return nil, fmt.Errorf("%w: the world of %s stands already", fault.ErrMissed, p.Name())
	}
	p.mu.Lock()
	world := p.world
	p.mu.Unlock()
	if err := p.command(command{Stall: true}); err != nil {
		p.stalling.Unlock()
		return nil, err
	}
	stop, err := world.Next(ctx)
	if err != nil {
		go p.resumeLate(world)
		return nil, fmt.Errorf("%w: %s: %w", fault.ErrMissed, p.Name(), err)
	}
	return func(context.Context) error {
		defer p.stalling.Unlock()
		return stop.Resume()
	}, nil
}

// resumeLate lets a world go on at once that nobody waited for any more, or finds
// that its process has ended.
func (p *process) resumeLate(world *pause.WorldStopper) {
	defer p.stalling.Unlock()
	if stop, err := world.Next(context.Background()); err == nil {
		_ = stop.Resume() // it may have ended
	}
}

// Arm implements fault.Worker.
func (p *process) Arm(ctx context.Context, point string, then fault.Then) error {
	t, err := p.set(command{Arm: point, Then: then})
	if err != nil {
		return err
	}
	return t.sprung(ctx)
}

// end is closed when the present process has ended.
func (p *process) end() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// close ends the present process orderly, or by force if that takes too long.
func (p *process) close() error {
	if p.present() == nil {
		return nil
	}
	err := p.command(command{Close: true})
	select {
	case <-p.end():
	case <-time.After(2 * closeBound):
		err = errors.Join(err, fmt.Errorf("chaos: %s did not end within %v of being told to, and was killed; it said: %s", p.Name(), 2*closeBound, p.lastWords()))
	}
	return errors.Join(err, p.Kill())
}

// lastWords are the last lines of what the processes wrote to standard error.
func (p *process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	text = bytes.TrimSpace(text)
	return string(text[max(0, len(text)-most):])
}
