//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

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

// isOurs reports whether this process's group is in the foreground.
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
