package pause

import (
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
