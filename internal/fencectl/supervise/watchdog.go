//go:build unix

package supervise

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	// heartbeat is how often the supervisor sends the deadline.
	heartbeat = 250 * time.Millisecond
	// silence is how long it must have sent nothing to count as stopped.
	silence = time.Second
	// farewell, in place of a deadline, says that the group is gone.
	farewell = 0
	// helperLimit bounds the waits for the watchdog.
	helperLimit = 30 * time.Second
)

// watchdog is the supervisor's end of the watchdog process.
type watchdog struct {
	cmd  *exec.Cmd
	pipe *os.File // numbers to it: the group, deadlines, farewell
	ack  *os.File // a byte from it: it has the group and a deadline
	gone chan struct{}
}

func startWatchdog(grace time.Duration) (*watchdog, error) {
	cmd, err := helper(watchdogName, grace.String())
	if err != nil {
		return nil, err
	}
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	ack, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	defer out.Close()
	cmd.ExtraFiles = []*os.File{in, out}
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, pipe.Close(), ack.Close())
	}
	w := &watchdog{cmd: cmd, pipe: pipe, ack: ack, gone: make(chan struct{})}
	go func() {
		defer close(w.gone)
		_ = cmd.Wait()
	}()
	return w, nil
}

func (w *watchdog) watch(group int, deadline instant) error {
	if err := errors.Join(w.send(int64(group)), w.send(int64(deadline))); err != nil {
		return err
	}
	_ = w.ack.SetReadDeadline(time.Now().Add(helperLimit))
	if _, err := io.ReadFull(w.ack, make([]byte, 1)); err != nil {
		return fmt.Errorf("the watchdog did not start: %w", err)
	}
	return nil
}

// send never blocks: a pipe that is full belongs to a watchdog that is stopped.
func (w *watchdog) send(number int64) error {
	_ = w.pipe.SetWriteDeadline(time.Now().Add(heartbeat))
	_, err := w.pipe.Write(binary.LittleEndian.AppendUint64(nil, uint64(number)))
	return err
}

func (w *watchdog) dismiss() {
	_ = w.send(farewell)
	_, _ = w.pipe.Close(), w.ack.Close()
	select {
	case <-w.gone:
	case <-time.After(heartbeat): // it is stopped, and has nothing to do any more
	}
}

func watchdogMain() {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	grace, err := time.ParseDuration(os.Args[1])
	if err != nil {
		os.Exit(CodeNotRun)
	}
	numbers := make(chan int64)
	go receive(os.NewFile(pipeIn, "numbers"), numbers)
	group, hasGroup := <-numbers
	deadline, hasDeadline := <-numbers
	if !hasGroup || !hasDeadline {
		return // nothing has begun
	}
	ack := os.NewFile(pipeOut, "ack")
	_, _ = ack.Write([]byte{1})
	_ = ack.Close()
	killAtDeadline(int(group), instant(deadline), grace, numbers)
}

func receive(pipe *os.File, numbers chan<- int64) {
	defer close(numbers)
	for {
		var number [8]byte
		if _, err := io.ReadFull(pipe, number[:]); err != nil {
			return
		}
		numbers <- int64(binary.LittleEndian.Uint64(number[:]))
	}
}

// killAtDeadline kills the group at the last deadline that the supervisor has sent, or once the
// supervisor has ended. If the supervisor has fallen silent, it asks the group to end before that.
func killAtDeadline(group int, deadline instant, grace time.Duration, numbers <-chan int64) {
	heard, asked := now(), false
	for {
		select {
		case number, alive := <-numbers:
			switch {
			case !alive:
				_ = syscall.Kill(-group, syscall.SIGKILL)
				return
			case number == farewell:
				return
			}
			deadline, heard = instant(number), now()
		case <-time.After(min(heartbeat, max(0, until(deadline)))):
		}
		switch left := until(deadline); {
		case left <= 0:
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return
		case left <= grace && !asked && until(heard) < -silence:
			asked = true
			_ = syscall.Kill(-group, syscall.SIGTERM)
			_ = syscall.Kill(-group, syscall.SIGCONT)
		}
	}
}
