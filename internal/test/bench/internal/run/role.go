package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/fencekit/fencekit/internal/test/bench/internal/load"
	"github.com/fencekit/fencekit/internal/test/bench/internal/scenario"
	"github.com/fencekit/fencekit/internal/test/testenv/child"
)

// workerVar makes a process of this program a worker, which another has started.
const workerVar = "FENCEKIT_BENCH_WORKER"

// PlayRole returns at once unless this process is a worker; then it works and doesn't return. It must be called
// first in main.
func PlayRole() {
	if os.Getenv(workerVar) == "" {
		return
	}
	if err := load.Serve(context.Background(), os.Stdin, os.Stdout, scenario.Find); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// player is a worker process. It is told, and answers, in JSON.
type player struct {
	child   *child.Process
	in      io.Closer
	to      *json.Encoder
	answers *json.Decoder
	out     io.Closer
}

func startPlayer() (*player, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerVar+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = write, os.Stderr
	c, err := child.Start(cmd)
	_ = write.Close() // the child has its own, whose end ends the reading
	if err != nil {
		return nil, errors.Join(fmt.Errorf("bench: %w", err), read.Close())
	}
	return &player{child: c, in: in, to: json.NewEncoder(in), answers: json.NewDecoder(read), out: read}, nil
}

// stopBound is how long a player may take to end.
const stopBound = 30 * time.Second

// stop ends the player's input, and waits for its end. It fails if that doesn't come, or with an error.
func (p *player) stop() error {
	_ = p.in.Close()
	defer p.out.Close()
	select {
	case <-p.child.Done():
	case <-time.After(stopBound):
		return errors.Join(fmt.Errorf("it did not end within %v", stopBound), p.child.Kill())
	}
	if state := p.child.Wait(); !state.Success() {
		return errors.New(state.String())
	}
	return nil
}
