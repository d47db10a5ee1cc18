package netfault

import (
	"time"

	"golang.org/x/sys/unix"
)

// sleep is exact to within tens of microseconds. A signal may end it early: then it goes on.
func sleep(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}
