package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/fencekit/fencekit/internal/test/pause"
	"github.com/fencekit/fencekit/internal/test/testenv/child"
)

// Worker is a worker in a process of its own, so that stopping it is real.
type Worker struct {
	Name   string
	Events chan Event // closed when it has ended
	Err    error      // why it ended, once Events is closed

	process *child.Process
}

// StartWorker starts this program anew, as a worker, which is killed when ctx ends, and dies with this process, even
// if it is stopped. The caller receives its Events until they are closed.
func StartWorker(ctx context.Context, cfg WorkerConfig) (*Worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	out, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer end.Close() // the worker has its own
	cmd := exec.CommandContext(ctx, self, "worker",
		"-name", cfg.Name, "-etcd", cfg.Endpoint, "-postgres", cfg.DSN, "-prefix", cfg.Prefix,
		"-fenced="+strconv.FormatBool(cfg.Fenced), "-pause-at", strconv.Itoa(cfg.PauseAt))
	cmd.Stdout, cmd.Stderr = end, os.Stderr
	w := &Worker{Name: cfg.Name, Events: make(chan Event)}
	if w.process, err = child.Start(cmd); err != nil {
		return nil, errors.Join(fmt.Errorf("starting %s: %w", w.Name, err), out.Close())
	}
	go func() {
		defer close(w.Events)
		defer out.Close()
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
		if state := w.process.Wait(); !state.Success() {
			w.Err = errors.New(state.String())
		}
	}()
	return w, nil
}

// Stopped reports whether SIGSTOP has stopped the worker.
func (w *Worker) Stopped() (bool, error) { return pause.Stopped(w.process.Pid()) }

// Resume lets a stopped worker go on.
func (w *Worker) Resume() error { return w.process.Resume() }
