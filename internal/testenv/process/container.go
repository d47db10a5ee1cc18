package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/testenv/child"
)

const (
	// dockerBound is how long the Docker daemon may take to say that it is there: a socket without one would
	// hang.
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

// Container is a server in Docker, where its data is. Its process here is a docker command that passes
// the server's output on.
type Container struct{ *Server }

// NewContainer makes what a container needs outside of Docker; the caller starts it, or
// stops it if it isn't going to run.
func NewContainer(name string) (*Container, error) {
	s, err := NewServer(name, nil, 1)
	if err != nil {
		return nil, err
	}
	// The mark is written before there is a container: whatever happens then, a sweep finds it.
	if err := os.WriteFile(s.dir.Path(dockerFile), nil, 0o644); err != nil {
		return nil, errors.Join(err, s.Stop(context.Background()))
	}
	return &Container{s}, nil
}

// Start creates the container, with these arguments of docker create besides its name, and starts
// it as Server.Start does. Nothing interrupts its creation: Docker might create it after its removal.
func (c *Container) Start(ctx context.Context, p Program, create ...string) error {
	if _, err := Docker(context.WithoutCancel(ctx), append([]string{"create", "--name", c.dir.Name()}, create...)...); err != nil {
		return errors.Join(fmt.Errorf("testenv: run %s in Docker: %w", c.name, err), c.Stop(ctx))
	}
	p.Command = func() (*exec.Cmd, error) {
		cmd := exec.Command("docker", "start", "--attach", c.dir.Name())
		cmd.Dir = c.dir.Path("")
		return cmd, nil
	}
	return c.Server.Start(ctx, p)
}

// Stop is Controller's; it ends the server by force.
func (c *Container) Stop(ctx context.Context) error {
	_ = c.Resume()
	return c.Server.Stop(ctx)
}

// Kill is Controller's.
func (c *Container) Kill() error {
	c.end(syscall.SIGKILL)
	return c.Server.Kill()
}

// Restart is Controller's.
func (c *Container) Restart(ctx context.Context) error {
	c.end(c.program.StopSignals[0])
	return c.Server.Restart(ctx)
}

// end ends the container, if it runs. A signal to the docker command would end that before it.
func (c *Container) end(sig syscall.Signal) {
	_ = c.Resume()
	if _, err := Docker(context.Background(), "kill", "--signal", strconv.Itoa(int(sig)), c.dir.Name()); err == nil {
		_, _ = Docker(context.Background(), "wait", c.dir.Name())
	}
}

// Pause freezes all that is in the container.
func (c *Container) Pause() error { return c.freeze("pause") }

// Resume is Controller's.
func (c *Container) Resume() error { return c.freeze("unpause") }

func (c *Container) freeze(command string) error {
	_, err := Docker(context.Background(), command, c.dir.Name())
	return err
}

// removeContainer ends and removes the container of a directory, if it has one.
func removeContainer(root string) error {
	if _, err := os.Stat(filepath.Join(root, dockerFile)); err != nil {
		return nil
	}
	if err := FindDocker(context.Background()); err != nil {
		return err
	}
	_, err := Docker(context.Background(), "rm", "--force", "--volumes", filepath.Base(root))
	if err != nil && strings.Contains(err.Error(), "No such container") {
		return nil
	}
	return err
}
