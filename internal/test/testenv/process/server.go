// Package process runs servers as child processes, or as containers: each with a directory and ports of its
// own that outlive it, so that it can be killed, paused and started again. It sees to it that nothing outlives
// the process that started them, as package testenv says.
package process

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/test/testenv/child"
)

const (
	// StartBound bounds a start, for callers without a deadline of their own.
	StartBound = 2 * time.Minute
	// signalBound is how long a signal may take before the next one.
	signalBound = 20 * time.Second
	// pollInterval is how often a starting server is asked whether it is there.
	pollInterval = 20 * time.Millisecond
	// logTail is how much of a server's log an error carries, in bytes.
	logTail = 2048
)

var (
	// ErrStopped: the server was stopped for good and its data removed.
	ErrStopped = errors.New("testenv: server is stopped")
	// ErrNotOurs: the server was given by an environment variable; these packages
	// didn't start it and don't stop, kill or pause it.
	ErrNotOurs = errors.New("testenv: not a server of ours")
)

// Server is a child process with a directory and ports that outlive it. Its methods may be called concurrently.
type Server struct {
	name     string
	source   string
	external string // the environment variable that names a server that runs already
	dir      *Dir
	ports    []*net.UDPConn // see reservePort
	program  Program
	signal   func(syscall.Signal) error // nil: to the child itself

	mu      sync.Mutex
	proc    *child.Process
	stopped bool
}

// Program is what a server runs.
type Program struct {
	Command func() (*exec.Cmd, error)
	// Ready returns once the server answers. It is called until it does, or the server ends.
	Ready func(ctx context.Context) error
	// StopSignals end it orderly, the gentlest first. Default: SIGTERM.
	StopSignals []syscall.Signal
	// KillSignals end it at once; SIGKILL follows them. Default: none.
	KillSignals []syscall.Signal
}

// NewServer makes a directory and reserves ports for a server; the caller starts it, or stops it if it isn't
// going to run.
func NewServer(name string, ports int) (*Server, error) {
	dir, err := NewDir()
	if err != nil {
		return nil, err
	}
	s := &Server{name: name, dir: dir}
	for range ports {
		p, err := reservePort()
		if err != nil {
			return nil, errors.Join(err, s.discard())
		}
		s.ports = append(s.ports, p)
	}
	return s, nil
}

// External is the server that an environment variable names. Nothing can be done to it: methods fail with an error
// that is ErrNotOurs, but Stop, after which it goes on.
func External(variable string) *Server { return &Server{external: variable} }

// Announce notes which server this is, and prints it, once per choice and process.
func (s *Server) Announce(server, source string) {
	s.source = source
	Announce(server, source)
}

// Source says which server this is, as "local /usr/lib/postgresql/15/bin (15.18)", "docker postgres:17" or
// "FENCEKIT_POSTGRES_DSN".
func (s *Server) Source() string { return s.source }

// Dir is the server's directory.
func (s *Server) Dir() *Dir { return s.dir }

// Port is the number of one of its ports.
func (s *Server) Port(i int) int { return s.ports[i].LocalAddr().(*net.UDPAddr).Port }

// Address is host:port of one of its ports.
func (s *Server) Address(i int) string { return s.ports[i].LocalAddr().String() }

// Start starts the server for the first time and returns once it is ready. One that fails
// to is stopped for good.
func (s *Server) Start(ctx context.Context, p Program) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.StopSignals == nil {
		p.StopSignals = []syscall.Signal{syscall.SIGTERM}
	}
	s.program = p
	if err := s.start(ctx); err != nil {
		s.stopped = true
		return errors.Join(err, s.discard())
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	cmd, err := s.program.Command()
	if err != nil {
		return err
	}
	logFile := s.dir.Path(s.name + ".log")
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("testenv: start %s: %w", s.name, err)
	}
	s.proc = proc
	ctx, cancel := context.WithTimeout(ctx, StartBound)
	defer cancel()
	alive, ended := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-proc.Done():
			ended(fmt.Errorf("it ended: %v", proc.Wait()))
		case <-ctx.Done():
		}
	}()
	if err := Poll(alive, s.program.Ready); err != nil {
		_ = proc.Kill()
		return fmt.Errorf("testenv: %s did not get ready: %w\n%s", s.name, err, TailOf(logFile))
	}
	return nil
}

// Stop ends the server orderly, or by force if that takes too long, and removes its data. A second call does
// nothing.
func (s *Server) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.external != "" {
		return nil
	}
	s.stopped = true
	return errors.Join(s.end(s.program.StopSignals), s.discard())
}

// discard gives back what outlives the process.
func (s *Server) discard() error {
	err := s.dir.remove()
	for _, p := range s.ports {
		err = errors.Join(err, p.Close())
	}
	return err
}

// Kill ends the server at once and waits for its end; its data stays. One that isn't running stays so.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ours("kill"); err != nil {
		return err
	}
	return s.end(s.program.KillSignals)
}

func (s *Server) ours(action string) error {
	if s.external != "" {
		return fmt.Errorf("%w: can't %s the one that %s names; unset it for tests that do", ErrNotOurs, action, s.external)
	}
	return nil
}

// end sends the signals in turn, giving each until signalBound to work, then SIGKILL, and waits for the child, also
// a stopped one.
func (s *Server) end(signals []syscall.Signal) error {
	if s.proc == nil || !s.proc.Alive() {
		return nil
	}
	send := s.signal
	if send == nil {
		send = s.proc.Signal
	}
	for _, sig := range append(slices.Clone(signals), syscall.SIGKILL) {
		if err := errors.Join(send(sig), send(syscall.SIGCONT)); err != nil && s.proc.Alive() {
			return err
		}
		select {
		case <-s.proc.Done():
			return nil
		case <-time.After(signalBound):
		}
	}
	return s.proc.Kill()
}

// Restart starts the server again on the same ports and data, after an orderly stop if it runs, and returns once it
// answers. It fails with ErrStopped after Stop.
func (s *Server) Restart(ctx context.Context) error {
	return s.WhileStopped(ctx, func() error { return nil })
}

// WhileStopped stops the server orderly if it runs, calls do and starts it again. It fails with ErrStopped
// after Stop.
func (s *Server) WhileStopped(ctx context.Context, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ours("restart"); err != nil {
		return err
	}
	if s.stopped {
		return ErrStopped
	}
	if err := s.end(s.program.StopSignals); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.start(ctx)
}

// Pause freezes the server and returns once it is: its connections stay open and silent. In a container it freezes
// all processes. It fails with child.ErrNotRunning if the server has ended.
func (s *Server) Pause() error {
	return s.whileRunning("pause", syscall.SIGSTOP, (*child.Process).Pause)
}

// Resume lets a paused server go on. It fails with child.ErrNotRunning if the server has ended.
func (s *Server) Resume() error {
	return s.whileRunning("resume", syscall.SIGCONT, (*child.Process).Resume)
}

func (s *Server) whileRunning(action string, sig syscall.Signal, do func(*child.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ours(action); err != nil {
		return err
	}
	if s.proc == nil || !s.proc.Alive() {
		return fmt.Errorf("%w: %s %s", child.ErrNotRunning, action, s.name)
	}
	if s.signal != nil {
		return s.signal(sig)
	}
	return do(s.proc)
}

// EachProcess calls do with the pid of the server itself and then with those of the processes that it has
// started; of these one may have ended when do fails.
func (s *Server) EachProcess(do func(pid int) error) error {
	return s.whileRunning("reach the processes of", 0, func(first *child.Process) error {
		if err := do(first.Pid()); err != nil {
			return err
		}
		pids, err := inhabitants(s.dir.root)
		for _, pid := range pids {
			if pid == first.Pid() {
				continue
			}
			if failed := do(pid); failed != nil && syscall.Kill(pid, 0) == nil {
				err = errors.Join(err, failed)
			}
		}
		return err
	})
}

// Environ is the environment without variables of these prefixes, which would configure a server, unnoticed.
func Environ(without ...string) []string { return Without(os.Environ(), without...) }

// Without is an environment without variables of these prefixes.
func Without(environ []string, prefixes ...string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
}

// TailOf returns the last bytes of a file, for an error message.
func TailOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}

var announced sync.Map

// Announce prints which server is used, once per choice and process.
func Announce(server, source string) {
	if _, again := announced.LoadOrStore(server+source, true); !again {
		fmt.Fprintf(os.Stderr, "%s: %s\n", server, source)
	}
}

// Poll calls ask until it succeeds. When ctx ends first, the error holds the
// cause and what ask said last.
func Poll(ctx context.Context, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// Listening asks whether a server accepts connections at an address.
func Listening(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Servers listen below the ephemeral range of Linux and macOS, so that no
// outgoing connection takes a server's port while it is down for a restart.
const (
	firstPort = 20000
	portCount = 10000
)

// reservePort returns the UDP twin of a TCP port on the loopback that no other user of this package gets until it is
// closed, in any process: the kernel keeps it exclusive, and drops it when its owner dies.
func reservePort() (*net.UDPConn, error) {
	start := rand.IntN(portCount)
	for i := range portCount {
		number := firstPort + (start+i)%portCount
		twin, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: number})
		if err != nil {
			continue
		}
		if probe, err := net.Listen("tcp4", twin.LocalAddr().String()); err == nil {
			return twin, probe.Close()
		}
		_ = twin.Close()
	}
	return nil, fmt.Errorf("testenv: no free port from %d to %d", firstPort, firstPort+portCount-1)
}
