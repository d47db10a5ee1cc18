package pause

import (
	"os"

	"golang.org/x/sys/unix"
)

// narrow has a pipe hold one page, so that every dump fills it, whatever the size of pages.
func narrow(pipe uintptr) error {
	_, err := unix.FcntlInt(pipe, unix.F_SETPIPE_SZ, os.Getpagesize())
	return err
}
