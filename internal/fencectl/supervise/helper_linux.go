package supervise

import "golang.org/x/sys/unix"

const sharedClock = unix.CLOCK_BOOTTIME // CLOCK_MONOTONIC stands still while suspended

// dieWithParent makes the kernel kill this process, and what it becomes, when the thread that
// started it ends.
func dieWithParent() { _ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) }
