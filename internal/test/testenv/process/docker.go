package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fencekit/fencekit/internal/test/testenv/child"
)

// dockerBound is how long the Docker daemon may take to say that it is there: a socket without one would hang.
const dockerBound = 20 * time.Second

// Docker runs the docker command, which stands in for a client library: that would double what programs that start
// servers compile. It keeps the terminal's Ctrl-C from the command: what it is making must be known before it can
// be removed.
func Docker(ctx context.Context, args ...string) error {
	var said strings.Builder
	cmd := exec.Command("docker", args...)
	cmd.Stderr = &said
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
		return fmt.Errorf("docker %s: %v: %s", args[0], state, strings.TrimSpace(said.String()))
	}
	return nil
}

// FindDocker returns an error unless there is a docker command whose daemon answers.
func FindDocker(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dockerBound)
	defer cancel()
	if err := Docker(ctx, "version"); err != nil {
		return fmt.Errorf("daemon does not answer: %w", err)
	}
	return nil
}

// StartContainer is Start for a server in a container, which has these arguments of docker create besides its name.
// Its process here is a docker command that passes the server's output on.
func (s *Server) StartContainer(ctx context.Context, p Program, create ...string) error {
	name := s.dir.Name()
	// The mark is written before there is a container: whatever happens then, the janitor removes it. Nothing
	// interrupts its creation: Docker might create it after its removal.
	err := os.WriteFile(s.dir.Path("docker"), nil, 0o644)
	if err == nil {
		err = Docker(context.WithoutCancel(ctx), append([]string{"create", "--name", name}, create...)...)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("testenv: run %s in Docker: %w", s.name, err), s.Stop(ctx))
	}
	p.Command = func() (*exec.Cmd, error) {
		cmd := exec.Command("docker", "start", "--attach", name)
		cmd.Dir = s.dir.Path("")
		return cmd, nil
	}
	s.signal = func(sig syscall.Signal) error {
		switch sig {
		case syscall.SIGSTOP:
			return Docker(context.Background(), "pause", name)
		case syscall.SIGCONT:
			_ = Docker(context.Background(), "unpause", name) // which fails for one that isn't paused
			return nil
		default:
			return Docker(context.Background(), "kill", "--signal", strconv.Itoa(int(sig)), name)
		}
	}
	return s.Start(ctx, p)
}
