// Package clock reads the clock that all processes of a machine share.
//
// A history of several processes has to be put in order by one clock. Go's own
// monotonic readings can't be sent to another process, and the clock of the day
// can be set back. This one is the system's CLOCK_MONOTONIC: it never goes back,
// and readings of any two processes on one machine can be compared.
//
// # What is not promised
//
// Readings of two machines, or from before and after a boot, can't be compared. On Linux
// the clock stands still while the machine is suspended.
package clock

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time on CLOCK_MONOTONIC in nanoseconds since a moment that is the
// same for all processes of the machine. It may be called concurrently.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(fmt.Sprintf("clock: CLOCK_MONOTONIC can't be read: %v", err)) // no system that Go runs on lacks it
	}
	return t.Nano()
}

// Sleep waits for the duration d and returns nil; if ctx ends first, it returns ctx's
// cause.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
