package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

const (
	// dockerBound is how long the Docker daemon may take to say that it is
	// there, on a loaded machine too; a socket without a daemon behind it would hang.
	dockerBound = 20 * time.Second
	// dockerFile marks a directory that has a container of its own name.
	dockerFile = "docker"
)

// Docker runs the docker command and returns what it printed, without space around it. The
// command stands in for a client library, which would double what programs that start
// servers compile.
func Docker(ctx context.Context, args ...string) (string, error) {
	var out, said bytes.Buffer
	if err := runDocker(ctx, &out, &said, args...); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return strings.TrimSpace(out.String()), nil
}

// runDocker keeps the terminal's Ctrl-C from the command: what it is making must be known
// before it can be removed.
func runDocker(ctx context.Context, stdout, stderr io.Writer, args ...string) error {
	cmd := exec.Command("docker", args...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	proc, err := child.Start(cmd)
	if err != nil {
		return err
	}
	select {
	case <-proc.Done():
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), proc.Kill())
	}
	if state := proc.Wait(); !state.Success() {
		return errors.New(state.String())
	}
	return nil
}

// FindDocker returns an error unless there is a docker command whose daemon answers.
func FindDocker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dockerBound)
	defer cancel()
	if _, err := Docker(ctx, "version"); err != nil {
		return fmt.Errorf("daemon does not answer: %w", err)
	}
	return nil
}

// PullImage shows Docker's progress on stderr.
func PullImage(ctx context.Context, image string) error {
	return runDocker(ctx, os.Stderr, os.Stderr, "pull", image)
}

// Container is a server in Docker, where its data is.
type Container struct {
	server     string // what it runs, for error messages
	dir        *Dir   // for its name
	port       *port
	ready      func(ctx context.Context) error // returns once it answers
	stopSignal syscall.Signal                  // ends it orderly

	mu      sync.Mutex
	stopped bool
}

// NewContainer makes what a container needs outside of Docker; the caller starts it, or
// stops it if it isn't going to run.
func NewContainer(server string, stopSignal syscall.Signal) (*Container, error) {
	dir, err := NewDir()
	if err != nil {
		return nil, err
	}
	// The mark is written before there is a container: whatever happens then, a sweep finds it.
	if err := os.WriteFile(dir.Path(dockerFile), nil, 0o644); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	p, err := reservePort()
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return &Container{server: server, dir: dir, port: p, stopSignal: stopSignal}, nil
}

// Name is the name of the container.
func (c *Container) Name() string { return c.dir.Name() }

// Address is host:port of its port.
func (c *Container) Address() string { return c.port.address() }

// Publish is the argument of --publish for a port of the container.
func (c *Container) Publish(inside int) string { return c.Address() + ":" + strconv.Itoa(inside) }

// Start calls create, which creates and starts the container, and returns once ready does,
// when the server answers. A container that fails to start is to be stopped. The end of ctx
// doesn't interrupt create: Docker might create the container after its removal.
func (c *Container) Start(ctx context.Context, create, ready func(ctx context.Context) error) error {
	c.ready = ready
	if err := create(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("testenv: run %s in Docker: %w", c.server, err)
	}
	return c.awaitReady(ctx)
}

// awaitReady waits until the server answers, or its container has ended.
func (c *Container) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartBound)
	defer cancel()
	alive, ended := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if code, err := Docker(alive, "wait", c.Name()); err == nil {
			ended(fmt.Errorf("its container ended with code %s", code))
		}
	})
	err := c.ready(alive)
	ended(nil)
	watching.Wait()
	if err != nil {
		return fmt.Errorf("testenv: %s in Docker did not get ready: %w\n%s", c.server, err, c.logTail())
	}
	return nil
}

// logTail is the end of the container's output, for an error message.
func (c *Container) logTail() string {
	var out bytes.Buffer
	if err := runDocker(context.Background(), &out, &out, "logs", c.Name()); err != nil {
		return err.Error()
	}
	text := out.String()
	return text[max(0, len(text)-logTail):]
}

// Stop is Controller's; it ends the server by force.
func (c *Container) Stop(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	if err := removeContainer(c.Name()); err != nil {
		return err
	}
	c.stopped = true
	return errors.Join(c.dir.Remove(), c.port.release())
}

// Kill is Controller's.
func (c *Container) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(context.Background(), syscall.SIGKILL)
}

// end sends a signal and waits for the container's end.
func (c *Container) end(ctx context.Context, sig syscall.Signal) error {
	state, err := c.state(ctx)
	if err != nil {
		return err
	}
	switch state {
	case "paused":
		if _, err := Docker(ctx, "unpause", c.Name()); err != nil {
			return err
		}
	case "running":
	default: // it has ended, or there is none
		return nil
	}
	if _, err := Docker(ctx, "kill", "--signal", strconv.Itoa(int(sig)), c.Name()); err != nil {
		if state, stateErr := c.state(ctx); stateErr != nil || state == "running" {
			return errors.Join(err, stateErr)
		}
	}
	_, err = Docker(ctx, "wait", c.Name())
	return err
}

// state is what Docker calls it, as "running", or empty if there is no container.
func (c *Container) state(ctx context.Context) (string, error) {
	return Docker(ctx, "ps", "--all", "--filter", "name=^"+c.Name()+"$", "--format", "{{.State}}")
}

// Restart is Controller's.
func (c *Container) Restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrStopped
	}
	if err := c.end(ctx, c.stopSignal); err != nil {
		return err
	}
	if _, err := Docker(ctx, "start", c.Name()); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// Pause is Controller's; it freezes all that is in the container.
func (c *Container) Pause() error { return c.freeze("pause") }

// Resume is Controller's.
func (c *Container) Resume() error { return c.freeze("unpause") }

func (c *Container) freeze(command string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := Docker(context.Background(), command, c.Name())
	return err
}

// removeContainer ends and removes the container of a name, if it is there.
func removeContainer(name string) error {
	_, err := Docker(context.Background(), "rm", "--force", "--volumes", name)
	if err != nil && strings.Contains(err.Error(), "No such container") {
		return nil
	}
	return err
}
