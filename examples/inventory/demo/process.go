package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/pause"
	"github.com/fencekit/fencekit/internal/testenv"
)

// Reexec must be the first call of main: the servers that the demo starts are this
// binary itself, executed again.
func Reexec() { testenv.Reexec() }

// process is a worker in a process of its own, so that stopping it is real.
type process struct {
	name   string
	cmd    *exec.Cmd
	events chan event    // closed when the process has closed its output
	done   chan struct{} // closed when it has ended
	err    error         // why it ended, once done is closed
}

func startProcess(ctx context.Context, cfg WorkerConfig) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "worker",
		"-name", cfg.name, "-etcd", cfg.endpoint, "-postgres", cfg.dsn, "-prefix", cfg.prefix,
		"-fenced="+strconv.FormatBool(cfg.fenced), "-pause-at", strconv.Itoa(cfg.pauseAt))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", cfg.name, err)
	}
	p := &process{name: cfg.name, cmd: cmd, events: make(chan event), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.forward(ctx, bufio.NewScanner(out))
		p.err = cmd.Wait()
	}()
	return p, nil
}

func (p *process) forward(ctx context.Context, lines *bufio.Scanner) {
	defer close(p.events)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e = event{Event: eventFailed, Error: fmt.Sprintf("not an event: %q", lines.Text())}
		}
		select {
		case p.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// awaitStopped returns once the operating system says that p stands still.
func (p *process) awaitStopped(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		stopped, err := pause.Stopped(p.cmd.Process.Pid)
		if err != nil || stopped {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s did not stop: %w", p.name, context.Cause(ctx))
		}
	}
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
