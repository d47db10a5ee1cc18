package pause

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// StopTheWorld stops every goroutine of the process, as the garbage collector does for a
// moment, and returns when the process with the file's WorldStopper has resumed them. It
// fails, without a stop, if there is no such process. It may be called concurrently and
// again.
//
// The runtime stops the world while it writes a heap dump, and a pipe that is not
// read is full at once.
func StopTheWorld(stopper *os.File) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	defer writer.Close()
	defer reader.Close()
	fd := writer.Fd() // makes it block: the runtime ignores EAGAIN
	if err := narrow(fd); err != nil {
		return fmt.Errorf("pause: a pipe that is full at once: %w", err)
	}
	if err := unix.Sendmsg(int(stopper.Fd()), []byte{0}, unix.UnixRights(int(reader.Fd())), nil, 0); err != nil {
		return fmt.Errorf("pause: no process can end the stop: %w", err)
	}
	// If it stayed open here, the other side's end would never be noticed.
	_ = reader.Close()
	debug.WriteHeapDump(fd)
	return nil
}
