package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/fencekit/fencekit/internal/pause"
)

// Worker is a worker in a process of its own, so that stopping it is real.
type Worker struct {
	Name   string
	Events chan Event // closed when it has ended
	Err    error      // why it ended, once Events is closed

	cmd      *exec.Cmd
	commands io.Writer
}

// StartWorker starts this program anew, as a worker, which is killed when ctx ends. The caller receives its Events
// until they are closed.
func StartWorker(ctx context.Context, cfg WorkerConfig) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "worker",
		"-name", cfg.Name, "-etcd", cfg.Endpoint, "-postgres", cfg.DSN, "-prefix", cfg.Prefix,
		"-fenced="+strconv.FormatBool(cfg.Fenced), "-pause-at", strconv.Itoa(cfg.PauseAt), "-live="+strconv.FormatBool(cfg.Live))
	cmd.Stderr = os.Stderr
	w := &Worker{Name: cfg.Name, cmd: cmd, Events: make(chan Event)}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if w.commands, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", w.Name, err)
	}
	go func() {
		defer close(w.Events)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var e Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				e = Event{Event: EventFailed, Error: fmt.Sprintf("not an event: %q", lines.Text())}
			}
			select {
			case w.Events <- e:
			case <-ctx.Done():
			}
		}
		w.Err = cmd.Wait()
	}()
	return w, nil
}

// Stopped reports whether SIGSTOP has stopped the worker.
func (w *Worker) Stopped() (bool, error) { return pause.Stopped(w.cmd.Process.Pid) }

// Resume lets a stopped worker go on.
func (w *Worker) Resume() error { return w.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the worker, a stopped one too.
func (w *Worker) Kill() error { return w.cmd.Process.Kill() }

// Tell gives a live worker a command.
func (w *Worker) Tell(command string) error {
	_, err := io.WriteString(w.commands, command+"\n")
	return err
}
