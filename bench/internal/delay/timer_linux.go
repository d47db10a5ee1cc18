package delay

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timer waits to within tens of microseconds. The timers of Go's runtime don't: an idle
// program waits for whole milliseconds.
type timer struct{ file *os.File }

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &timer{os.NewFile(uintptr(fd), "timer")}, nil
}

// wait returns at a time, or at once if that has passed.
func (t *timer) wait(until time.Time) error {
	left := time.Until(until)
	if left <= 0 {
		return nil
	}
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(left.Nanoseconds())}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.TimerfdSettime(int(fd), 0, &spec, nil) }); err != nil {
		return err
	}
	if failed != nil {
		return os.NewSyscallError("timerfd_settime", failed)
	}
	var expirations [8]byte
	_, err = t.file.Read(expirations[:])
	return err
}

func (t *timer) close() error { return t.file.Close() }
