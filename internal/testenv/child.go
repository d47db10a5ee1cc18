package testenv

import (
	"os"
	"os/exec"
	"syscall"
)

// Child is a process that a test starts beside servers, such as a worker of its
// own binary. Its methods may be called concurrently.
type Child struct{ proc *process }

// StartChild starts cmd as a child that dies with this process. It must be ended
// by Kill, or end by itself.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	return &Child{p}, nil
}

// Pid is the child's process id.
func (c *Child) Pid() int { return c.proc.cmd.Process.Pid }

// Signal sends a signal; one to a child that has ended does nothing.
func (c *Child) Signal(sig syscall.Signal) error { return c.proc.signal(sig) }

// Resume lets a paused child go on; one that has ended stays so.
func (c *Child) Resume() error { return c.proc.resume() }

// Kill ends the child by SIGKILL and waits for its end. One that has ended stays so.
func (c *Child) Kill() error { return c.proc.end(signalBound) }

// Wait waits for the child's end and returns how it ended.
func (c *Child) Wait() *os.ProcessState {
	<-c.proc.done
	return c.proc.cmd.ProcessState
}
