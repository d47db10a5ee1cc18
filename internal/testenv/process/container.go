package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

const (
	// dockerBound is how long the Docker daemon may take to say that it is
	// there, on a loaded machine too; a socket without a daemon behind it would hang.
	dockerBound = 20 * time.Second
	// dockerFile marks a directory that has a container, a network or both of its
	// own name.
	dockerFile = "docker"
)

// NewDocker returns a client to a daemon that answers.
func NewDocker(ctx context.Context) (*dockertest.Pool, error) {
	pool, err := dockertest.NewPool("")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dockerBound)
	defer cancel()
	if err := pool.Client.PingWithContext(ctx); err != nil {
		return nil, fmt.Errorf("daemon does not answer: %w", err)
	}
	return pool, nil
}

// NewDockerDir makes a directory for what is going to run in Docker under its name. The
// mark is written before that does: whatever happens then, a sweep finds it.
func NewDockerDir() (*Dir, error) {
	dir, err := NewDir()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(dir.Path(dockerFile), nil, 0o644); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return dir, nil
}

// Container is a server in Docker, where its data is.
type Container struct {
	pool       *dockertest.Pool
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
func NewContainer(pool *dockertest.Pool, server string, stopSignal syscall.Signal) (*Container, error) {
	dir, err := NewDockerDir()
	if err != nil {
		return nil, err
	}
	p, err := reservePort()
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return &Container{pool: pool, server: server, dir: dir, port: p, stopSignal: stopSignal}, nil
}

// Name is the name of the container, and of its network if it has one.
func (c *Container) Name() string { return c.dir.Name() }

// Address is host:port of its port.
func (c *Container) Address() string { return c.port.address() }

// Binding publishes a port of the container on the loopback.
func (c *Container) Binding(inside docker.Port) map[docker.Port][]docker.PortBinding {
	return map[docker.Port][]docker.PortBinding{
		inside: {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(c.port.number)}},
	}
}

// Start calls create, which creates and starts the container, and returns once ready does,
// when the server answers. A container that fails to start is to be stopped.
func (c *Container) Start(ctx context.Context, create, ready func(ctx context.Context) error) error {
	c.ready = ready
	if err := create(ctx); err != nil {
		return fmt.Errorf("testenv: run %s in Docker: %w", c.server, err)
	}
	return c.awaitReady(ctx)
}

// awaitReady waits until the server answers, or its container has ended.
func (c *Container) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartBound)
	defer cancel()
	alive, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	go func() {
		if code, err := c.pool.Client.WaitContainerWithContext(c.Name(), alive); err == nil {
			ended(fmt.Errorf("its container ended with code %d", code))
		}
	}()
	if err := c.ready(alive); err != nil {
		return fmt.Errorf("testenv: %s in Docker did not get ready: %w\n%s", c.server, err, c.logTail())
	}
	return nil
}

// logTail is the end of the container's output, for an error message.
func (c *Container) logTail() string {
	var out bytes.Buffer
	err := c.pool.Client.Logs(docker.LogsOptions{
		Container: c.Name(), OutputStream: &out, ErrorStream: &out, Stdout: true, Stderr: true,
	})
	if err != nil {
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
	if err := RemoveFromDocker(c.pool, c.Name()); err != nil {
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
	state, err := c.pool.Client.InspectContainerWithContext(c.Name(), ctx)
	var none *docker.NoSuchContainer
	if errors.As(err, &none) {
		return nil
	}
	if err != nil || !state.State.Running {
		return err
	}
	if state.State.Paused {
		if err := c.pool.Client.UnpauseContainer(c.Name()); err != nil {
			return err
		}
	}
	err = c.pool.Client.KillContainer(docker.KillContainerOptions{ID: c.Name(), Signal: docker.Signal(sig), Context: ctx})
	var ended *docker.ContainerNotRunning
	if err != nil && !errors.As(err, &ended) {
		return err
	}
	_, err = c.pool.Client.WaitContainerWithContext(c.Name(), ctx)
	return err
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
	if err := c.pool.Client.StartContainerWithContext(c.Name(), nil, ctx); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// Pause is Controller's; it freezes all that is in the container.
func (c *Container) Pause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Client.PauseContainer(c.Name())
}

// Resume is Controller's.
func (c *Container) Resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Client.UnpauseContainer(c.Name())
}

// RemoveFromDocker ends and removes the container and the network of a name, if
// they are there. Containers that still are in the network leave it.
func RemoveFromDocker(pool *dockertest.Pool, name string) error {
	err := pool.Client.RemoveContainer(docker.RemoveContainerOptions{ID: name, Force: true, RemoveVolumes: true})
	var noContainer *docker.NoSuchContainer
	if err != nil && !errors.As(err, &noContainer) {
		return err
	}
	network, err := pool.Client.NetworkInfo(name)
	var noNetwork *docker.NoSuchNetwork
	if errors.As(err, &noNetwork) {
		return nil
	}
	if err != nil {
		return err
	}
	return pool.RemoveNetwork(&dockertest.Network{Network: network})
}
