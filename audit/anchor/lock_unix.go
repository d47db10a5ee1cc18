//go:build unix

package anchor

import (
	"errors"
	"os"
	"syscall"
)

// lock locks the file until it is closed. It fails with ErrInUse if the file is locked already.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}
