package pause

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Self stops the whole process with SIGSTOP and returns once it has been sent
// SIGCONT. The signal goes to the calling thread itself: it is delivered
// before the system call returns, so nothing after the call runs any more. A
// signal to the process could be taken by another thread, and this one would run
// on.
func Self() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, errno := syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(syscall.Getpid()), uintptr(syscall.Gettid()), uintptr(syscall.SIGSTOP))
	if errno != 0 {
		return errno
	}
	return nil
}

// Stopped reports whether a process is stopped by a signal.
func Stopped(pid int) (bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false, err
	}
	// The state follows the name, which stands in parentheses and may hold any.
	_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	if !found || len(rest) == 0 {
		return false, fmt.Errorf("pause: /proc/%d/stat is not understood: %q", pid, stat)
	}
	return rest[0] == 'T', nil
}

// narrow limits a pipe to one page, so that every dump fills it.
func narrow(pipe uintptr) error {
	_, err := unix.FcntlInt(pipe, unix.F_SETPIPE_SZ, os.Getpagesize())
	return err
}
