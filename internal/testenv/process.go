package testenv

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a running child. Its methods may be called concurrently.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the child has been waited for
}

// startProcess starts cmd as a child that dies with this process and doesn't
// get the terminal's signals.
//
// The death signal of Linux comes when the *thread* that forked ends. So each
// child has a goroutine that keeps its thread from fork to wait.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	dieWithParent(cmd)
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

// alive reports whether the child hasn't been waited for yet.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig; a child that has ended is no error.
func (p *process) signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// end sends the signals in turn, giving each until bound to work, then
// SIGKILL, and waits for the child. It also ends a stopped child.
func (p *process) end(bound time.Duration, signals ...syscall.Signal) error {
	for _, sig := range signals {
		if err := errors.Join(p.signal(sig), p.signal(syscall.SIGCONT)); err != nil {
			return err
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(bound):
		}
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// pause stops the child and returns once the kernel shows it stopped.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for p.alive() {
		stopped, err := isStopped(p.cmd.Process.Pid)
		if stopped || err != nil {
			return err
		}
		runtime.Gosched()
	}
	return ErrNotRunning
}

// resume lets a paused child go on.
func (p *process) resume() error { return p.signal(syscall.SIGCONT) }
