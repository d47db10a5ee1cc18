//go:build unix

package supervise

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

type group struct {
	id     int                     // the command's process id
	ready  *os.File                // a byte lets the command begin; its end without one ends the helper
	states chan syscall.WaitStatus // of the command: stopped, and at last how it ended
}

func startGroup(c Command) (*group, error) {
	cmd, err := helper(commandName, append([]string{strconv.Itoa(os.Getpid()), c.Path}, c.Args...)...)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd.Env, cmd.ExtraFiles = c.Env, []*os.File{read}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, write.Close())
	}
	g := &group{id: cmd.Process.Pid, ready: write, states: make(chan syscall.WaitStatus)}
	go g.wait()
	return g, cmd.Process.Release()
}

func (g *group) begin() error {
	_, err := g.ready.Write([]byte{1})
	return err
}

func (g *group) wait() {
	for {
		var state syscall.WaitStatus
		_, err := syscall.Wait4(g.id, &state, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return // it was waited for already, which nothing here does
		default:
			g.states <- state
			if !state.Stopped() {
				return
			}
		}
	}
}

// signal sends a signal to all of the group. It reports whether there is a process left: one that
// has changed its user may not be signalled.
func (g *group) signal(s syscall.Signal) bool {
	return !errors.Is(syscall.Kill(-g.id, s), syscall.ESRCH)
}

func (g *group) terminate() {
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT)
}

// poll is how often isGone is asked: no system tells when a group has no process left.
const poll = 5 * time.Millisecond

// isGone reports whether the group has no process left, once the command was waited for. In a
// container where this process is the first, the kernel makes orphans its children: they
// have to be waited for too.
func (g *group) isGone() bool {
	for {
		pid, err := syscall.Wait4(-g.id, nil, syscall.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return !g.signal(0)
		}
	}
}

// terminal is the terminal on stdin, when this process was in its foreground.
type terminal struct {
	fd    int
	own   int // this process's group
	modes *term.State
}

// foreground returns nil if there is no such terminal.
func foreground() *terminal {
	t := &terminal{fd: int(os.Stdin.Fd()), own: unix.Getpgrp()}
	if !t.isOurs() {
		return nil
	}
	t.modes, _ = term.GetState(t.fd)
	return t
}

func (t *terminal) isOurs() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// give puts a group into the foreground. It must come after the start of all children, which
// would inherit that the signal is ignored.
func (t *terminal) give(group int) {
	signal.Ignore(syscall.SIGTTOU) // which a process in the background gets for this
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

// takeBack returns the terminal to this process, in the modes that it had: a command that was
// killed can't restore them.
func (t *terminal) takeBack() {
	t.give(t.own)
	if t.modes != nil {
		_ = term.Restore(t.fd, t.modes)
	}
}
