//go:build unix

package supervise

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// instant is a time on the clock that all processes of the machine share, in nanoseconds. It
// goes on while the machine is suspended.
type instant int64

func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(sharedClock, &t); err != nil {
		panic(fmt.Sprintf("supervise: the clock can't be read: %v", err)) // no system that Go runs on lacks it
	}
	return instant(t.Nano())
}

func (t instant) add(d time.Duration) instant { return t + instant(d) }

// until is the time from now to t; less than 0 if t has passed.
func until(t instant) time.Duration { return time.Duration(t - now()) }
