//go:build unix

package anchor

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the file for this process until it is closed. It fails with ErrInUse if another
// one has it.
func lock(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}
