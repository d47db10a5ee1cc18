package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"
)

const (
	// dockerBound is how long the Docker daemon may take to say that it is
	// there; a socket without a daemon behind it would hang.
	dockerBound = 2 * time.Second
	// dockerFile marks a directory that has a container, a network or both of its
	// own name.
	dockerFile = "docker"
)

// newDocker returns a client to a daemon that answers.
func newDocker(ctx context.Context) (*dockertest.Pool, error) {
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

// newDockerDir makes a directory and reserves ports for what is going to run in
// Docker. The mark is written before that does: whatever happens then, a sweep
// finds it.
func newDockerDir(ports int) (*server, error) {
	s, err := newServer("docker", nil, ports)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.dir.path(dockerFile), nil, 0o644); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// container is a server in Docker. Its methods may be called concurrently; they
// take effect one after another.
type container struct {
	pool   *dockertest.Pool
	server string  // what it runs, for error messages
	dir    *runDir // for its name; the data is in the container
	port   *port
	create func(ctx context.Context) error // creates and starts it
	ready  func(ctx context.Context) error // returns once it answers

	stopSignal syscall.Signal // ends it orderly

	mu      sync.Mutex
	stopped bool
}

// newContainer makes what a container needs outside of Docker; the caller fills in
// the rest and starts it, or stops it.
func newContainer(pool *dockertest.Pool, server string, stopSignal syscall.Signal) (*container, error) {
	s, err := newDockerDir(1)
	if err != nil {
		return nil, err
	}
	return &container{pool: pool, server: server, dir: s.dir, port: s.ports[0], stopSignal: stopSignal}, nil
}

func (c *container) name() string { return filepath.Base(c.dir.root) }

// binding publishes a port of the container on the loopback.
func (c *container) binding(inside docker.Port) map[docker.Port][]docker.PortBinding {
	return map[docker.Port][]docker.PortBinding{
		inside: {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(c.port.number)}},
	}
}

func (c *container) start(ctx context.Context) error {
	if err := c.create(ctx); err != nil {
		return fmt.Errorf("testenv: run %s in Docker: %w", c.server, err)
	}
	return c.awaitReady(ctx)
}

// awaitReady waits until the server answers, or its container has ended.
func (c *container) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	alive, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	go func() {
		if code, err := c.pool.Client.WaitContainerWithContext(c.name(), alive); err == nil {
			ended(fmt.Errorf("its container ended with code %d", code))
		}
	}()
	if err := c.ready(alive); err != nil {
		return fmt.Errorf("testenv: %s in Docker did not get ready: %w\n%s", c.server, err, c.logTail())
	}
	return nil
}

// logTail is the end of the container's output, for an error message.
func (c *container) logTail() string {
	var out bytes.Buffer
	err := c.pool.Client.Logs(docker.LogsOptions{
		Container: c.name(), OutputStream: &out, ErrorStream: &out, Stdout: true, Stderr: true,
	})
	if err != nil {
		return err.Error()
	}
	text := out.String()
	return text[max(0, len(text)-logTail):]
}

func (c *container) stop(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	if err := removeFromDocker(c.pool, c.name()); err != nil {
		return err
	}
	c.stopped = true
	return errors.Join(c.dir.remove(), c.port.release())
}

func (c *container) kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end(context.Background(), syscall.SIGKILL)
}

// end sends a signal and waits for the container's end.
func (c *container) end(ctx context.Context, sig syscall.Signal) error {
	state, err := c.pool.Client.InspectContainerWithContext(c.name(), ctx)
	var none *docker.NoSuchContainer
	if errors.As(err, &none) {
		return nil
	}
	if err != nil || !state.State.Running {
		return err
	}
	if state.State.Paused {
		if err := c.pool.Client.UnpauseContainer(c.name()); err != nil {
			return err
		}
	}
	err = c.pool.Client.KillContainer(docker.KillContainerOptions{ID: c.name(), Signal: docker.Signal(sig), Context: ctx})
	var ended *docker.ContainerNotRunning
	if err != nil && !errors.As(err, &ended) {
		return err
	}
	_, err = c.pool.Client.WaitContainerWithContext(c.name(), ctx)
	return err
}

func (c *container) restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrStopped
	}
	if err := c.end(ctx, c.stopSignal); err != nil {
		return err
	}
	if err := c.pool.Client.StartContainerWithContext(c.name(), nil, ctx); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

func (c *container) pause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Client.PauseContainer(c.name())
}

func (c *container) resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool.Client.UnpauseContainer(c.name())
}

// removeFromDocker ends and removes the container and the network of a name, if
// they are there. Containers that still are in the network leave it.
func removeFromDocker(pool *dockertest.Pool, name string) error {
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
