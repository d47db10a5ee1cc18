package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Images of Postgres: the stand-in that "make images" builds where nothing can
// be pulled, else the official one.
const (
	standInImage  = "fencekit/postgres:15"
	officialImage = "postgres:17"
)

// startDocker runs a Postgres image with its port on the loopback.
func startDocker(ctx context.Context, cfg Config) (*Server, error) {
	if err := process.FindDocker(ctx); err != nil {
		return nil, err
	}
	image, err := findImage(ctx)
	if err != nil {
		return nil, err
	}
	c, err := process.NewContainer("Postgres", syscall.SIGINT)
	if err != nil {
		return nil, err
	}
	p := &Server{
		controller: c,
		dsn:        "postgres://postgres@" + c.Address() + "/postgres?sslmode=disable",
		source:     "docker " + image,
	}
	ready := func(ctx context.Context) error { return process.Poll(ctx, p.ping) }
	create := func(ctx context.Context) error {
		_, err := process.Docker(ctx, append([]string{
			"run", "--detach", "--name", c.Name(), "--publish", c.Publish(5432),
			"--env", "POSTGRES_HOST_AUTH_METHOD=trust", image, "postgres",
		}, settingArgs(cfg.Settings)...)...)
		return err
	}
	if err := c.Start(ctx, create, ready); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return p, nil
}

// findImage is an image that is on this machine, or was pulled.
func findImage(ctx context.Context) (string, error) {
	for _, image := range []string{standInImage, officialImage} {
		if _, err := process.Docker(ctx, "image", "inspect", image); err == nil {
			return image, nil
		}
	}
	fmt.Fprintf(os.Stderr, "testenv: pulling the image %s\n", officialImage)
	if err := process.PullImage(ctx, officialImage); err != nil {
		return "", fmt.Errorf("pull %s (make images builds a stand-in): %w", officialImage, err)
	}
	return officialImage, nil
}
