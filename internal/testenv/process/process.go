package process

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a running child. Its methods may be called concurrently.
type Process struct {
	Cmd  *exec.Cmd
	Done chan struct{} // closed once the child has been waited for
}

// Start starts cmd as a child that dies with this process and doesn't
// get the terminal's signals.
//
// The death signal of Linux comes when the *thread* that forked ends. So each
// child has a goroutine that keeps its thread from fork to wait.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Done: make(chan struct{})}
	dieWithParent(cmd)
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in cmd.ProcessState
			close(p.Done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Alive reports whether the child hasn't been waited for yet.
func (p *Process) Alive() bool {
	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// Signal sends sig; a child that has ended is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.Cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// End sends the signals in turn, giving each until bound to work, then
// SIGKILL, and waits for the child. It also ends a stopped child.
func (p *Process) End(bound time.Duration, signals ...syscall.Signal) error {
	for _, sig := range signals {
		if err := errors.Join(p.Signal(sig), p.Signal(syscall.SIGCONT)); err != nil {
			return err
		}
		select {
		case <-p.Done:
			return nil
		case <-time.After(bound):
		}
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done
	return nil
}

// Pause stops the child and returns once the kernel shows it stopped.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for p.Alive() {
		stopped, err := IsStopped(p.Cmd.Process.Pid)
		if stopped || err != nil {
			return err
		}
		runtime.Gosched()
	}
	return ErrNotRunning
}

// Resume lets a paused child go on.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }
