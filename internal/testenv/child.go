package testenv

import (
	"os"
	"os/exec"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Child is a process that a test starts beside servers, such as a worker of its
// own binary. Its methods may be called concurrently.
type Child struct{ proc *process.Process }

// StartChild starts cmd as a child that dies with this process. It must be ended
// by Kill, or end by itself.
func StartChild(cmd *exec.Cmd) (*Child, error) {
	p, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &Child{p}, nil
}

// Pid is the child's process id.
func (c *Child) Pid() int { return c.proc.Cmd.Process.Pid }

// Signal sends a signal; one to a child that has ended does nothing.
func (c *Child) Signal(sig syscall.Signal) error { return c.proc.Signal(sig) }

// Resume lets a paused child go on; one that has ended stays so.
func (c *Child) Resume() error { return c.proc.Resume() }

// Kill ends the child by SIGKILL and waits for its end. One that has ended stays so.
func (c *Child) Kill() error { return c.proc.End(process.SignalBound) }

// Wait waits for the child's end and returns how it ended.
func (c *Child) Wait() *os.ProcessState {
	<-c.proc.Done
	return c.proc.Cmd.ProcessState
}
