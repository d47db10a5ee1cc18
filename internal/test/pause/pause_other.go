//go:build !linux

package pause

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// Self stops the whole process with SIGSTOP and returns once it has been sent
// SIGCONT. On this system the calling goroutine may run on for a moment.
func Self() error { return syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }

// Stopped reports whether a process is stopped by a signal.
func Stopped(pid int) (bool, error) {
	out, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		return false, fmt.Errorf("pause: ps: %w", err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T"), nil
}
