//go:build unix

package anchor

import (
	"errors"
	"os"
	"syscall"
)

// lock locks the file until it is unlocked, or this process ends. It fails with ErrInUse if the
// file is locked already.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// unlock releases the lock. Closing the file alone doesn't while a child process that is being
// started, by any goroutine, still has the descriptor that it inherits until it executes its program.
func unlock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }
