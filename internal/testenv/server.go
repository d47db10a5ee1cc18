package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	// startBound bounds a start, for callers without a deadline of their own.
	startBound = 2 * time.Minute
	// signalBound is how long a stop signal may take before the next one.
	signalBound = 20 * time.Second
	// logTail is how much of a server's log an error carries, in bytes.
	logTail = 2048
)

// controller is what can be done to a server, wherever it runs.
type controller interface {
	stop(ctx context.Context) error
	kill() error
	restart(ctx context.Context) error
	pause() error
	resume() error
}

// server is a child process with a directory and ports that outlive it, so
// that it can be killed and started again. Its methods may be called
// concurrently; they take effect one after another.
type server struct {
	name    string
	dir     *runDir
	ports   []*port // the first is where clients connect
	command func() (*exec.Cmd, error)
	ready   func(ctx context.Context) error // returns once it answers
	log     io.Writer                       // beside the log file; may be nil

	stopSignals []syscall.Signal // orderly, gentlest first
	killSignals []syscall.Signal // before SIGKILL; may be empty

	mu      sync.Mutex
	proc    *process
	stopped bool
}

// newServer makes a directory and reserves ports for a server; the caller
// fills in the rest and starts it, or discards it.
func newServer(name string, log io.Writer, ports int) (*server, error) {
	if !reexecCalled.Load() {
		return nil, ErrNoReexec
	}
	dir, err := newRunDir()
	if err != nil {
		return nil, err
	}
	s := &server{name: name, dir: dir, log: log}
	for range ports {
		p, err := reservePort()
		if err != nil {
			return nil, errors.Join(err, s.discard())
		}
		s.ports = append(s.ports, p)
	}
	return s, nil
}

// start starts the process and returns once it is ready.
func (s *server) start(ctx context.Context) error {
	cmd, err := s.command()
	if err != nil {
		return err
	}
	logFile := s.dir.path(s.name + ".log")
	out, err := openLog(logFile, s.log)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = out, out
	if s.proc, err = startProcess(cmd); err != nil {
		return fmt.Errorf("testenv: start %s: %w", s.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	starting, done := whileAlive(ctx, s.proc)
	defer done()
	if err := s.ready(starting); err != nil {
		_ = s.proc.end(signalBound)
		return fmt.Errorf("testenv: %s did not get ready: %w\n%s", s.name, err, tailOf(logFile))
	}
	return nil
}

func (s *server) stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.end(s.stopSignals), s.discard())
}

// discard gives back what outlives the process.
func (s *server) discard() error {
	errs := []error{s.dir.remove()}
	for _, p := range s.ports {
		errs = append(errs, p.release())
	}
	return errors.Join(errs...)
}

func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(s.killSignals)
}

func (s *server) end(signals []syscall.Signal) error {
	if s.proc == nil {
		return nil
	}
	return s.proc.end(signalBound, signals...)
}

func (s *server) restart(ctx context.Context) error {
	return s.whileDown(ctx, func() error { return nil })
}

// whileDown stops the server orderly if it runs, calls do and starts it again.
func (s *server) whileDown(ctx context.Context, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if err := s.end(s.stopSignals); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.start(ctx)
}

func (s *server) pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.alive() {
		return fmt.Errorf("%w: pause %s", ErrNotRunning, s.name)
	}
	return s.proc.pause()
}

func (s *server) resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.alive() {
		return fmt.Errorf("%w: resume %s", ErrNotRunning, s.name)
	}
	return s.proc.resume()
}
