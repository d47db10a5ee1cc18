package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

const (
	// StartBound bounds a start, for callers without a deadline of their own.
	StartBound = 2 * time.Minute
	// logTail is how much of a server's log an error carries, in bytes.
	logTail = 2048
)

// Controller is what can be done to a server, wherever it runs.
type Controller interface {
	Stop(ctx context.Context) error
	Kill() error
	Restart(ctx context.Context) error
	Pause() error
	Resume() error
}

// Server is a child process with a directory and ports that outlive it, so
// that it can be killed and started again. Its methods may be called
// concurrently; they take effect one after another.
type Server struct {
	Name    string
	Dir     *Dir
	Ports   []*Port // the first is where clients connect
	Command func() (*exec.Cmd, error)
	Ready   func(ctx context.Context) error // returns once it answers
	log     io.Writer                       // beside the log file; may be nil

	StopSignals []syscall.Signal // orderly, gentlest first
	KillSignals []syscall.Signal // before SIGKILL; may be empty

	Mu      sync.Mutex
	Proc    *child.Process
	Stopped bool
}

// NewServer makes a directory and reserves ports for a server; the caller
// fills in the rest and starts it, or discards it.
func NewServer(name string, log io.Writer, ports int) (*Server, error) {
	dir, err := NewDir()
	if err != nil {
		return nil, err
	}
	s := &Server{Name: name, Dir: dir, log: log}
	for range ports {
		p, err := ReservePort()
		if err != nil {
			return nil, errors.Join(err, s.Discard())
		}
		s.Ports = append(s.Ports, p)
	}
	return s, nil
}

// Start starts the process and returns once it is ready.
func (s *Server) Start(ctx context.Context) error {
	cmd, err := s.Command()
	if err != nil {
		return err
	}
	logFile := s.Dir.Path(s.Name + ".log")
	out, err := openLog(logFile, s.log)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = out, out
	if s.Proc, err = child.Start(cmd); err != nil {
		return fmt.Errorf("testenv: start %s: %w", s.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, StartBound)
	defer cancel()
	starting, done := whileAlive(ctx, s.Proc)
	defer done()
	if err := s.Ready(starting); err != nil {
		_ = s.Proc.Kill()
		return fmt.Errorf("testenv: %s did not get ready: %w\n%s", s.Name, err, TailOf(logFile))
	}
	return nil
}

// Stop ends the server orderly, or by force if that takes too long, and removes its
// directory. A second call does nothing.
func (s *Server) Stop(context.Context) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Stopped {
		return nil
	}
	s.Stopped = true
	return errors.Join(s.End(s.StopSignals), s.Discard())
}

// Discard gives back what outlives the process.
func (s *Server) Discard() error {
	errs := []error{s.Dir.Remove()}
	for _, p := range s.Ports {
		errs = append(errs, p.Release())
	}
	return errors.Join(errs...)
}

// Kill ends the server by SIGKILL and waits for its end. One that is not running stays so.
func (s *Server) Kill() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.End(s.KillSignals)
}

// End sends the signals in turn, then SIGKILL, and waits for the end of the process, if
// there is one. The caller holds Mu.
func (s *Server) End(signals []syscall.Signal) error {
	if s.Proc == nil {
		return nil
	}
	return s.Proc.End(signals...)
}

// Restart starts the server again, after an orderly stop if it runs, and returns once it
// answers. It fails with ErrStopped after Stop.
func (s *Server) Restart(ctx context.Context) error {
	return s.WhileDown(ctx, func() error { return nil })
}

// WhileDown stops the server orderly if it runs, calls do and starts it again.
func (s *Server) WhileDown(ctx context.Context, do func() error) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Stopped {
		return ErrStopped
	}
	if err := s.End(s.StopSignals); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.Start(ctx)
}

// Pause freezes the server: its connections stay open and silent. It fails with
// ErrNotRunning if it has ended.
func (s *Server) Pause() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Proc == nil || !s.Proc.Alive() {
		return fmt.Errorf("%w: pause %s", child.ErrNotRunning, s.Name)
	}
	return s.Proc.Pause()
}

// Resume lets a paused server go on.
func (s *Server) Resume() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.Proc == nil || !s.Proc.Alive() {
		return fmt.Errorf("%w: resume %s", child.ErrNotRunning, s.Name)
	}
	return s.Proc.Resume()
}
