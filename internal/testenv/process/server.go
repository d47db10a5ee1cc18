// Package process runs servers as child processes, or as containers: each with a directory and ports of its
// own that outlive it, so that it can be killed, paused and started again. It sees to it that nothing outlives
// the process that started them, as package testenv says.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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

// ErrStopped: the server was stopped for good and its data removed.
var ErrStopped = errors.New("testenv: server is stopped")

// Controller is what can be done to a server, wherever it runs. Its methods may be called concurrently.
type Controller interface {
	// Stop ends the server orderly, or by force if that takes too long, and removes its
	// data. A second call does nothing.
	Stop(ctx context.Context) error
	// Kill ends the server at once and waits for its end; its data stays. One that isn't
	// running stays so.
	Kill() error
	// Restart starts the server again on the same ports and data, after an orderly stop if
	// it runs, and returns once it answers. It fails with ErrStopped after Stop.
	Restart(ctx context.Context) error
	// Pause freezes the server and returns once it is: its connections stay open and
	// silent. It fails with child.ErrNotRunning if it has ended.
	Pause() error
	// Resume lets a paused server go on.
	Resume() error
}

// Server is a child process with a directory and ports that outlive it.
type Server struct {
	name    string
	log     io.Writer // beside the log file; may be nil
	dir     *Dir
	ports   []*port
	program Program

	mu      sync.Mutex
	proc    *child.Process
	stopped bool
}

// Program is what a server runs.
type Program struct {
	Command func() (*exec.Cmd, error)
	// Ready returns once the server answers.
	Ready func(ctx context.Context) error
	// StopSignals end it orderly, the gentlest first. Default: SIGTERM.
	StopSignals []syscall.Signal
	// KillSignals end it at once; SIGKILL follows them. Default: none.
	KillSignals []syscall.Signal
}

// NewServer makes a directory and reserves ports for a server; the caller starts it, or stops it if it isn't
// going to run.
func NewServer(name string, log io.Writer, ports int) (*Server, error) {
	dir, err := NewDir()
	if err != nil {
		return nil, err
	}
	s := &Server{name: name, dir: dir, log: log}
	for range ports {
		p, err := reservePort()
		if err != nil {
			return nil, errors.Join(err, s.discard())
		}
		s.ports = append(s.ports, p)
	}
	return s, nil
}

// Dir is the server's directory.
func (s *Server) Dir() *Dir { return s.dir }

// Port is the number of one of its ports.
func (s *Server) Port(i int) int { return s.ports[i].number }

// Address is host:port of one of its ports.
func (s *Server) Address(i int) string { return s.ports[i].address() }

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
	out, err := openLog(logFile, s.log)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = out, out
	if s.proc, err = child.Start(cmd); err != nil {
		return fmt.Errorf("testenv: start %s: %w", s.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, StartBound)
	defer cancel()
	starting, done := whileAlive(ctx, s.proc)
	defer done()
	if err := s.program.Ready(starting); err != nil {
		_ = s.proc.Kill()
		return fmt.Errorf("testenv: %s did not get ready: %w\n%s", s.name, err, TailOf(logFile))
	}
	return nil
}

// Stop is Controller's.
func (s *Server) Stop(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	return errors.Join(s.end(s.program.StopSignals), s.discard())
}

// discard gives back what outlives the process.
func (s *Server) discard() error {
	errs := []error{s.dir.Remove()}
	for _, p := range s.ports {
		errs = append(errs, p.release())
	}
	return errors.Join(errs...)
}

// Kill is Controller's.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end(s.program.KillSignals)
}

func (s *Server) end(signals []syscall.Signal) error {
	if s.proc == nil {
		return nil
	}
	return s.proc.End(signals...)
}

// Restart is Controller's.
func (s *Server) Restart(ctx context.Context) error {
	return s.WhileStopped(ctx, func() error { return nil })
}

// WhileStopped stops the server orderly if it runs, calls do and starts it again. It fails with ErrStopped
// after Stop.
func (s *Server) WhileStopped(ctx context.Context, do func() error) error {
	return s.whileDown(ctx, s.program.StopSignals, do)
}

// WhileKilled is WhileStopped, but that the server is killed.
func (s *Server) WhileKilled(ctx context.Context, do func() error) error {
	return s.whileDown(ctx, s.program.KillSignals, do)
}

func (s *Server) whileDown(ctx context.Context, signals []syscall.Signal, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return ErrStopped
	}
	if err := s.end(signals); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return s.start(ctx)
}

// Pause is Controller's.
func (s *Server) Pause() error { return s.whileRunning("pause", (*child.Process).Pause) }

// Resume is Controller's. It fails with child.ErrNotRunning if the server has ended.
func (s *Server) Resume() error { return s.whileRunning("resume", (*child.Process).Resume) }

// EachProcess calls do with the pid of the server itself and then with those of the processes that it has
// started; of these one may have ended when do fails.
func (s *Server) EachProcess(do func(pid int) error) error {
	return s.whileRunning("reach the processes of", func(first *child.Process) error {
		if err := do(first.Pid()); err != nil {
			return err
		}
		pids, err := Inhabitants(s.dir.root)
		if err != nil {
			return err
		}
		for _, pid := range slices.DeleteFunc(pids, func(pid int) bool { return pid == first.Pid() }) {
			if err := do(pid); err != nil && lives(pid, s.dir.root) {
				return err
			}
		}
		return nil
	})
}

func (s *Server) whileRunning(action string, do func(*child.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.proc.Alive() {
		return fmt.Errorf("%w: %s %s", child.ErrNotRunning, action, s.name)
	}
	return do(s.proc)
}

// Environ is the environment without variables of these prefixes, which would configure a server, unnoticed.
func Environ(without ...string) []string { return Without(os.Environ(), without...) }

// Without is an environment without variables of these prefixes.
func Without(environ []string, prefixes ...string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(v, prefix) })
	})
}

// openLog opens a file to be a child's output, which goes to extra too, unless that is nil, until the child
// and all its descendants have closed it.
func openLog(file string, extra io.Writer) (*os.File, error) {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil || extra == nil {
		return log, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		defer r.Close()
		defer log.Close()
		_, _ = io.Copy(io.MultiWriter(log, extra), r)
	}()
	return w, nil
}

// TailOf returns the last bytes of a file, for an error message.
func TailOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}

// ErrNotOurs: the server was given by an environment variable; these packages
// didn't start it and don't stop, kill or pause it.
var ErrNotOurs = errors.New("testenv: not a server of ours")

// NotOurs returns an error that is ErrNotOurs: action was asked of the server that an environment variable
// names.
func NotOurs(action, variable string) error {
	return fmt.Errorf("%w: can't %s the one that %s names; unset it for tests that do", ErrNotOurs, action, variable)
}

// External returns the controller of such a server, which goes on after Stop.
func External(variable string) Controller { return &external{variable} }

type external struct{ variable string }

func (x *external) Stop(context.Context) error    { return nil }
func (x *external) Kill() error                   { return NotOurs("kill", x.variable) }
func (x *external) Restart(context.Context) error { return NotOurs("restart", x.variable) }
func (x *external) Pause() error                  { return NotOurs("pause", x.variable) }
func (x *external) Resume() error                 { return NotOurs("resume", x.variable) }

var announced sync.Map

// Announce prints which server is used, once per choice and process.
func Announce(server, source string) {
	if _, again := announced.LoadOrStore(server+source, true); !again {
		fmt.Fprintf(os.Stderr, "%s: %s\n", server, source)
	}
}

// Servers listen below the ephemeral range of Linux and macOS, so that no
// outgoing connection takes a server's port while it is down for a restart.
const (
	firstPort = 20000
	portCount = 10000
)

// port is a TCP port on the loopback that no other user of this package gets until release, in any process.
// The reservation is the UDP port of the same number: the kernel keeps it exclusive, and drops it when the
// owner dies.
type port struct {
	number int
	twin   *net.UDPConn
}

func reservePort() (*port, error) {
	start := rand.IntN(portCount)
	for i := range portCount {
		number := firstPort + (start+i)%portCount
		twin, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: number})
		if err != nil {
			continue
		}
		if probe, err := net.Listen("tcp4", loopback(number)); err == nil {
			return &port{number, twin}, probe.Close()
		}
		_ = twin.Close()
	}
	return nil, fmt.Errorf("testenv: no free port from %d to %d", firstPort, firstPort+portCount-1)
}

func (p *port) release() error {
	if err := p.twin.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func (p *port) address() string { return loopback(p.number) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
