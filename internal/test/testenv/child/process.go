// Package child runs programs as children of this process that die with it, and can be
// paused.
package child

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/fencekit/fencekit/internal/test/pause"
)

// ErrNotRunning: what was asked for can be done to a running process only.
var ErrNotRunning = errors.New("testenv: server is not running")

// Process is a child of this process: a server, or a worker of a test's own binary. Its methods may be called
// concurrently.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the child has been waited for
}

// Start starts cmd as a child that dies with this process and doesn't
// get the terminal's signals. It must be ended by Kill or End, or end by itself.
//
// The death signal of Linux comes when the *thread* that forked ends. So each
// child has a goroutine that keeps its thread from fork to wait.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithParent(cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Pid is the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed at the child's end.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child's end and returns how it ended.
func (p *Process) Wait() *os.ProcessState {
	<-p.done
	return p.cmd.ProcessState
}

// Alive reports whether the child hasn't been waited for yet.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends sig; a child that has ended is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Kill ends the child by SIGKILL and waits for its end.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Pause stops the child and returns once the kernel shows it stopped.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for p.Alive() {
		stopped, err := pause.Stopped(p.Pid())
		if stopped || err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		runtime.Gosched()
	}
	return ErrNotRunning
}

// Resume lets a paused child go on.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }
