//go:build !linux

package pause

import "syscall"

// Self stops the whole process with SIGSTOP and returns once it has been sent
// SIGCONT. On this system the calling goroutine may run on for a moment.
func Self() error { return syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }
