//go:build unix

// Package supervise runs a command for as long as a lock is held, and no longer.
//
// # Model
//
// Three processes: the supervisor, which holds the lock and calls [Run]; the command, which
// leads a process group; and the watchdog. The last two are this binary, executed again ([RunHelper]).
//
// The supervisor sends the watchdog the lock's deadline over a pipe, on the clock that all processes of the
// machine share. The watchdog has a session of its own, where no signal of a terminal reaches it. It kills the
// group at the deadline, and at once when the pipe ends without a farewell.
//
// # Invariants
//
//   - Nothing of the command runs before the watchdog has its group and a deadline.
//   - A deadline that is sent is no later than the lock's: the clock is read first.
//   - Grace before the deadline, or when the lock is lost earlier, the group gets SIGTERM, and SIGKILL at the
//     deadline, or Grace after the loss, whichever is first.
//   - Run returns when all of the group is gone.
//
// # What is not promised
//
// A process that leaves the group, as a daemon or the job of an interactive shell does, is not
// killed; nor is the group if supervisor and watchdog are both stopped, or both killed, though on
// Linux the kernel kills the command itself when the supervisor ends. A process that can't be
// killed, in an uninterruptible system call or since it has changed its user, outlives the
// deadline. Run waits for the rest of such a group a second beyond the deadline.
package supervise

import (
	"cmp"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// CodeNotRun is the exit code of a command that is found and can't be run.
const CodeNotRun = 126

// Lease is the part of a fence.Lease that matters here.
type Lease interface {
	// Remaining is the time until the lock is lost unless it is renewed; 0 once it is lost.
	Remaining() time.Duration
	// Done is closed when the lock is lost.
	Done() <-chan struct{}
}

// Command is what to run.
type Command struct {
	Path string   // as exec.LookPath returns it
	Args []string // with the program's name
	Env  []string
	// Signals are those that the process gets: SIGINT and SIGTERM from before the lock was
	// acquired, so that none is lost. Run adds the others.
	Signals chan os.Signal
	// Grace is the time between SIGTERM and SIGKILL. It has to be well below what Remaining
	// is right before a renewal.
	Grace time.Duration
}

// Ending says how the command ended.
type Ending struct {
	Code int  // as a shell's: the command's, or 128 and the signal that ended it
	Lost bool // it was ended because the lock was lost, or nearly
}

// ErrUnguarded means that the command was ended because the watchdog has ended, or is stopped.
var ErrUnguarded = errors.New("the watchdog is gone")

type job struct {
	lease    Lease
	grace    time.Duration
	group    *group
	watchdog *watchdog
	terminal *terminal // nil if there is none to give
	deadline instant   // when the group is killed
	ending   bool      // it was asked to end, so the deadline stands
	lost     bool
}

// Run runs a command, forwards signals to it, and ends it when the lease does. It returns
// when all of the command's process group is gone. An error means that the command didn't run,
// or ErrUnguarded. It must not be called twice at a time.
func Run(lease Lease, c Command) (Ending, error) {
	runtime.LockOSThread() // the kernel takes the end of the thread for that of the parent
	defer runtime.UnlockOSThread()
	signal.Notify(c.Signals, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	j, err := start(lease, c)
	if err != nil {
		return Ending{}, err
	}
	err = j.begin()
	state, unguarded := j.untilEnd(c.Signals)
	j.clear()
	j.watchdog.dismiss()
	if j.terminal != nil {
		j.terminal.takeBack()
	}
	return Ending{Code: codeOf(state), Lost: j.lost}, cmp.Or(err, unguarded)
}

func start(lease Lease, c Command) (*job, error) {
	j := &job{lease: lease, grace: c.Grace, terminal: foreground()}
	j.deadline = now().add(lease.Remaining())
	var err error
	if j.watchdog, err = startWatchdog(c.Grace); err != nil {
		return nil, err
	}
	if j.group, err = startGroup(c); err != nil {
		_ = j.watchdog.pipe.Close()
		return nil, err
	}
	return j, nil
}

// begin lets the command begin when the watchdog knows its group, unless the lock is lost.
func (j *job) begin() error {
	defer j.group.ready.Close()
	j.extend()
	if err := j.watchdog.watch(j.group.id, j.deadline); err != nil || j.lost {
		return err
	}
	if j.terminal != nil {
		j.terminal.give(j.group.id)
	}
	return j.group.begin()
}

// extend moves the deadline on with the lease. The clock is read first: if this process stops
// in between, the deadline is too early and not too late. A deadline that has passed stays, since
// the lease's own clock may have stood still while the machine was suspended.
func (j *job) extend() {
	at := now()
	left := j.lease.Remaining()
	if at >= j.deadline {
		left = 0
	}
	if left > 0 {
		j.deadline = at.add(left)
	}
	if left <= j.grace {
		j.lost = true
		j.end(at)
	}
}

func (j *job) end(at instant) {
	if j.ending {
		return
	}
	j.ending = true
	j.deadline = min(j.deadline, at.add(j.grace))
	j.group.terminate()
}

func (j *job) untilEnd(signals <-chan os.Signal) (syscall.WaitStatus, error) {
	var unguarded error
	done, gone := j.lease.Done(), j.watchdog.gone
	for {
		guarded := true
		select {
		case state := <-j.group.states:
			if !state.Stopped() {
				j.tend()
				return state, unguarded
			}
			j.stopped(state.StopSignal(), signals)
		case s := <-signals:
			j.group.signal(s.(syscall.Signal))
		case <-done:
			done = nil
		case <-gone:
			gone, guarded = nil, false
		case <-time.After(j.rest()):
		}
		guarded = j.tend() && guarded
		if !guarded && !j.ending {
			unguarded = ErrUnguarded
			j.end(now())
		}
	}
}

// rest is how long there is nothing to do. What the deadline didn't kill is killed again.
func (j *job) rest() time.Duration {
	left := until(j.deadline)
	if left <= 0 {
		return poll
	}
	return min(heartbeat, left)
}

// tend does what is due, and reports whether the watchdog has heard of it.
func (j *job) tend() bool {
	if !j.ending {
		j.extend()
	}
	if until(j.deadline) <= 0 {
		j.group.signal(syscall.SIGKILL)
	}
	return j.watchdog.send(int64(j.deadline)) == nil
}

// stopped follows a command that the terminal has stopped: the shell gets the terminal back. Meanwhile the lease isn't
// renewed, and the watchdog ends a command that stays stopped for too long. Without a terminal of its own this process
// goes on, since no shell would continue it.
func (j *job) stopped(by syscall.Signal, signals <-chan os.Signal) {
	if j.terminal == nil || by == syscall.SIGSTOP {
		return
	}
	j.terminal.takeBack()
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	for s := range signals { // this thread may run on until another one has taken the signal
		if s == syscall.SIGCONT {
			break
		}
		j.group.signal(s.(syscall.Signal))
	}
	if j.terminal.isOurs() {
		j.terminal.give(j.group.id)
	}
	j.group.signal(syscall.SIGCONT)
}

func (j *job) clear() {
	if !j.group.signal(0) {
		return
	}
	j.end(now())
	for until(j.deadline) > -silence && !j.group.isGone() {
		time.Sleep(poll)
		j.tend()
	}
}

func codeOf(state syscall.WaitStatus) int {
	if state.Signaled() {
		return 128 + int(state.Signal())
	}
	return state.ExitStatus()
}
