package pause

import (
	"os"

	"golang.org/x/sys/unix"
)

// narrow limits a pipe to one page, so that every dump fills it.
func narrow(pipe uintptr) error {
	_, err := unix.FcntlInt(pipe, unix.F_SETPIPE_SZ, os.Getpagesize())
	return err
}
