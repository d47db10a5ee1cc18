package pause

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// StopTheWorld stops every goroutine of the process, as the garbage collector
// does for a moment, and returns when the process that has the WorldStopper of the file
// has let them go on. It fails, without a stop, if there is none. It may
// be called concurrently and again.
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
	fd := writer.Fd() // which makes it block: the runtime takes no notice of "try again"
	if err := narrow(fd); err != nil {
		return fmt.Errorf("pause: a pipe that is full at once: %w", err)
	}
	if err := unix.Sendmsg(int(stopper.Fd()), []byte{0}, unix.UnixRights(int(reader.Fd())), nil, 0); err != nil {
		return fmt.Errorf("pause: no process can end the stop: %w", err)
	}
	// Left open here it would never tell that the other side has gone.
	_ = reader.Close()
	debug.WriteHeapDump(fd)
	return nil
}
