//go:build unix

package anchor

import (
	"errors"
	"os"
	"syscall"
)

// lock fails with ErrInUse if the file is locked already. The end of this process unlocks it.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// unlock unlocks the file. Closing alone doesn't while a child process that is being started still has the
// descriptor.
func unlock(file *os.File) error { return syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }
