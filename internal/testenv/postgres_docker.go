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

// Images of Postgres: the stand-in that "make images" builds where nothing can
// be pulled, else the official one.
const (
	standInRepository, standInTag   = "fencekit/postgres", "15"
	officialRepository, officialTag = "postgres", "17"
)

const (
	// dockerBound is how long the Docker daemon may take to say that it is
	// there; a socket without a daemon behind it would hang.
	dockerBound = 2 * time.Second
	// dockerFile marks the directory of a container, which has its name.
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

// container is a Postgres in Docker. Its methods may be called concurrently;
// they take effect one after another.
type container struct {
	client *docker.Client
	dir    *runDir // for its name; the data is in the container
	port   *port
	id     string
	ready  func(context.Context) error

	mu      sync.Mutex
	stopped bool
}

// startDockerPostgres runs a Postgres image with its port on the loopback.
func startDockerPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	pool, err := newDocker(ctx)
	if err != nil {
		return nil, err
	}
	repository, tag, err := postgresImage(ctx, pool.Client)
	if err != nil {
		return nil, err
	}
	s, err := newServer("docker", nil, 1)
	if err != nil {
		return nil, err
	}
	c := &container{client: pool.Client, dir: s.dir, port: s.ports[0]}
	p := &Postgres{
		controller: c,
		dsn:        "postgres://postgres@" + c.port.address() + "/postgres?sslmode=disable",
		source:     "docker " + repository + ":" + tag,
	}
	c.ready = func(ctx context.Context) error { return poll(ctx, p.ping) }
	if err := c.run(ctx, pool, repository, tag, settingArgs(cfg.Settings)); err != nil {
		return nil, errors.Join(err, c.stop(ctx))
	}
	return p, nil
}

// postgresImage is an image that is on this machine, or was pulled.
func postgresImage(ctx context.Context, client *docker.Client) (repository, tag string, err error) {
	if _, err := client.InspectImage(standInRepository + ":" + standInTag); err == nil {
		return standInRepository, standInTag, nil
	}
	image := officialRepository + ":" + officialTag
	if _, err := client.InspectImage(image); err == nil {
		return officialRepository, officialTag, nil
	}
	fmt.Fprintf(os.Stderr, "testenv: pulling the image %s\n", image)
	pull := docker.PullImageOptions{Repository: officialRepository, Tag: officialTag, Context: ctx}
	if err := client.PullImage(pull, docker.AuthConfiguration{}); err != nil {
		return "", "", fmt.Errorf("pull %s (make images builds a stand-in): %w", image, err)
	}
	return officialRepository, officialTag, nil
}

// run creates and starts the container. The mark is written first: whatever
// happens then, a sweep finds the container.
func (c *container) run(ctx context.Context, pool *dockertest.Pool, repository, tag string, args []string) error {
	if err := os.WriteFile(c.dir.path(dockerFile), nil, 0o644); err != nil {
		return err
	}
	resource, err := pool.RunWithOptions(&dockertest.RunOptions{
		Name:         c.name(),
		Repository:   repository,
		Tag:          tag,
		Env:          []string{"POSTGRES_HOST_AUTH_METHOD=trust"},
		Cmd:          append([]string{"postgres"}, args...),
		ExposedPorts: []string{"5432/tcp"},
		PortBindings: map[docker.Port][]docker.PortBinding{
			"5432/tcp": {{HostIP: "127.0.0.1", HostPort: strconv.Itoa(c.port.number)}},
		},
	})
	if err != nil {
		return fmt.Errorf("run %s:%s: %w", repository, tag, err)
	}
	c.id = resource.Container.ID
	return c.awaitReady(ctx)
}

func (c *container) name() string { return filepath.Base(c.dir.root) }

// awaitReady waits until Postgres answers, or its container has ended.
func (c *container) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startBound)
	defer cancel()
	alive, ended := context.WithCancelCause(ctx)
	defer ended(nil)
	go func() {
		if code, err := c.client.WaitContainerWithContext(c.id, alive); err == nil {
			ended(fmt.Errorf("its container ended with code %d", code))
		}
	}()
	if err := c.ready(alive); err != nil {
		return fmt.Errorf("testenv: Postgres in Docker did not get ready: %w\n%s", err, c.logTail())
	}
	return nil
}

// logTail is the end of the container's output, for an error message.
func (c *container) logTail() string {
	var out bytes.Buffer
	err := c.client.Logs(docker.LogsOptions{
		Container: c.id, OutputStream: &out, ErrorStream: &out, Stdout: true, Stderr: true, Tail: "20",
	})
	if err != nil {
		return err.Error()
	}
	return out.String()
}

func (c *container) stop(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	if err := removeContainer(c.client, c.name()); err != nil {
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
	state, err := c.client.InspectContainerWithContext(c.id, ctx)
	if err != nil || !state.State.Running {
		return err
	}
	if state.State.Paused {
		if err := c.client.UnpauseContainer(c.id); err != nil {
			return err
		}
	}
	err = c.client.KillContainer(docker.KillContainerOptions{ID: c.id, Signal: docker.Signal(sig), Context: ctx})
	var ended *docker.ContainerNotRunning
	if err != nil && !errors.As(err, &ended) {
		return err
	}
	_, err = c.client.WaitContainerWithContext(c.id, ctx)
	return err
}

func (c *container) restart(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return ErrStopped
	}
	if err := c.end(ctx, syscall.SIGINT); err != nil {
		return err
	}
	if err := c.client.StartContainerWithContext(c.id, nil, ctx); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

func (c *container) pause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client.PauseContainer(c.id)
}

func (c *container) resume() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.client.UnpauseContainer(c.id)
}

// removeContainer ends and removes a container, if there is one of that name.
func removeContainer(client *docker.Client, name string) error {
	err := client.RemoveContainer(docker.RemoveContainerOptions{ID: name, Force: true, RemoveVolumes: true})
	var none *docker.NoSuchContainer
	if errors.As(err, &none) {
		return nil
	}
	return err
}
