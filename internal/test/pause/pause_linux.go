// Package pause pauses the calling process at an exact point, as a garbage collector, an operator or a hypervisor might
// at any point. Another process resumes it.
package pause

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
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

// Stopped reports whether every thread of a process is stopped by a signal. It fails if there is no such process.
func Stopped(pid int) (bool, error) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return false, err
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return false, nil // it ended meanwhile: look again
		}
		if err != nil {
			return false, err
		}
		// The state follows the name, which stands in parentheses and may hold any.
		_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if !found || len(rest) == 0 {
			return false, fmt.Errorf("pause: a stat of process %d is not understood: %q", pid, stat)
		}
		if rest[0] != 'T' {
			return false, nil
		}
	}
	return true, nil
}
