//go:build unix

package supervise

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What this binary is called when it is a helper.
const (
	watchdogName = "fencectl-watchdog"
	commandName  = "fencectl-command"
)

// The descriptors of a helper's pipes.
const (
	pipeIn  = 3
	pipeOut = 4
)

// RunHelper must be called first in main. In a helper, a process that Run has started, it doesn't
// return.
func RunHelper() {
	switch os.Args[0] {
	case watchdogName:
		watchdogMain()
		os.Exit(0)
	case commandName:
		becomeCommand()
	}
}

func helper(name string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{name}, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	return cmd, nil
}

// becomeCommand waits until the watchdog is ready, and is then replaced by the command. If the
// supervisor ends before that, it ends.
func becomeCommand() {
	ready := os.NewFile(pipeIn, "ready")
	if n, _ := ready.Read(make([]byte, 1)); n == 0 {
		os.Exit(1)
	}
	_ = ready.Close()
	supervisor, path, args := os.Args[1], os.Args[2], os.Args[3:]
	runtime.LockOSThread() // the kernel keeps what comes next for the thread
	dieWithParent()
	if strconv.Itoa(os.Getppid()) != supervisor {
		os.Exit(1) // it has ended already
	}
	err := syscall.Exec(path, args, os.Environ())
	fmt.Fprintf(os.Stderr, "fencectl: %s can't be run: %v\n", path, err)
	os.Exit(CodeNotRun)
}

// instant is a time on the clock that all processes of the machine share, in nanoseconds. It
// goes on while the machine is suspended.
type instant int64

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(sharedClock, &t); err != nil {
		panic(fmt.Sprintf("supervise: the clock can't be read: %v", err)) // no system that Go runs on lacks it
	}
	return instant(t.Nano())
}

func (t instant) add(d time.Duration) instant { return t + instant(d) }

func until(t instant) time.Duration { return time.Duration(t - now()) }
