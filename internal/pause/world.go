// Package pause pauses the calling process at an exact point, as a garbage collector, an
// operator or a hypervisor might at any point.
//
// Self pauses the whole process by a signal, as an operator does. StopTheWorld stops Go
// alone, as the garbage collector does: the process runs, and so do its sockets and its
// threads in system calls, but no goroutine. Another process ends both.
//
// # What is not promised
//
// Work that a goroutine has handed to the kernel or to C before StopTheWorld goes on
// meanwhile, but can't return. The stop is longer than requested by the time that a dump of
// the heap takes.
package pause

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"time"

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

// WorldStopper ends the stops of StopTheWorld in one worker process, which inherits its File.
type WorldStopper struct {
	worker *os.File
	conn   *net.UnixConn
}

// NewWorldStopper makes a WorldStopper. The caller must close it.
func NewWorldStopper() (*WorldStopper, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("pause: %w", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	worker, own := os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "stopper")
	defer own.Close() // the connection has a copy
	conn, err := net.FileConn(own)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pause: %w", err), worker.Close())
	}
	return &WorldStopper{worker: worker, conn: conn.(*net.UnixConn)}, nil
}

// File is the file with which the worker calls StopTheWorld; pass it in exec.Cmd.ExtraFiles.
// Close it when the worker has started: otherwise Next doesn't notice the worker's end.
func (s *WorldStopper) File() *os.File { return s.worker }

// Close makes every later StopTheWorld fail. A world that is stopped stays so.
func (s *WorldStopper) Close() error {
	_ = s.worker.Close() // it may be closed
	return s.conn.Close()
}

// Next waits until the worker has stopped its world, and returns that stop. It
// fails with io.EOF if the worker has ended, and when ctx ends.
func (s *WorldStopper) Next(ctx context.Context) (*Stop, error) {
	reader, err := s.receive(ctx)
	if err != nil {
		return nil, err
	}
	// The dump's first bytes are written when the world has stopped.
	defer deadline(ctx, reader)()
	if _, err := io.ReadFull(reader, make([]byte, 1)); err != nil {
		return nil, errors.Join(failure(ctx, err), reader.Close())
	}
	return &Stop{reader}, nil
}

// receive receives the pipe that the worker will fill.
func (s *WorldStopper) receive(ctx context.Context) (*os.File, error) {
	defer deadline(ctx, s.conn)()
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := s.conn.ReadMsgUnix(make([]byte, 1), rights)
	if err != nil {
		return nil, failure(ctx, err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) == 0 {
		return nil, failure(ctx, errors.Join(err, io.EOF))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, failure(ctx, err)
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil { // for deadlines
		return nil, failure(ctx, errors.Join(err, unix.Close(fds[0])))
	}
	return os.NewFile(uintptr(fds[0]), "stop"), nil
}

// deadline makes reading fail when ctx ends, until the returned function is called.
func deadline(ctx context.Context, from interface{ SetReadDeadline(time.Time) error }) func() {
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = from.SetReadDeadline(time.Unix(0, 0))
		close(set)
	})
	return func() {
		if !stop() {
			<-set
			_ = from.SetReadDeadline(time.Time{})
		}
	}
}

func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("pause: no world was stopped: %w", err)
}

// Stop is a stopped world.
type Stop struct{ reader *os.File }

// Resume resumes the world and returns when it runs, or its process has ended. It reads the
// dump to its end, so that the worker gets no SIGPIPE. A second call fails.
func (s *Stop) Resume() error {
	_, err := io.Copy(io.Discard, s.reader)
	return errors.Join(err, s.reader.Close())
}
