package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/ory/dockertest/v3"
	"github.com/ory/dockertest/v3/docker"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Images of Postgres: the stand-in that "make images" builds where nothing can
// be pulled, else the official one.
const (
	standInRepository, standInTag   = "fencekit/postgres", "15"
	officialRepository, officialTag = "postgres", "17"
)

// startDocker runs a Postgres image with its port on the loopback.
func startDocker(ctx context.Context, cfg Config) (*Server, error) {
	pool, err := process.NewDocker(ctx)
	if err != nil {
		return nil, err
	}
	repository, tag, err := findImage(ctx, pool.Client)
	if err != nil {
		return nil, err
	}
	c, err := process.NewContainer(pool, "Postgres", syscall.SIGINT)
	if err != nil {
		return nil, err
	}
	p := &Server{
		controller: c,
		dsn:        "postgres://postgres@" + c.Address() + "/postgres?sslmode=disable",
		source:     "docker " + repository + ":" + tag,
	}
	ready := func(ctx context.Context) error { return process.Poll(ctx, p.ping) }
	create := func(context.Context) error {
		_, err := pool.RunWithOptions(&dockertest.RunOptions{
			Name:         c.Name(),
			Repository:   repository,
			Tag:          tag,
			Env:          []string{"POSTGRES_HOST_AUTH_METHOD=trust"},
			Cmd:          append([]string{"postgres"}, settingArgs(cfg.Settings)...),
			ExposedPorts: []string{"5432/tcp"},
			PortBindings: c.Binding("5432/tcp"),
		})
		return err
	}
	if err := c.Start(ctx, create, ready); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return p, nil
}

// findImage is an image that is on this machine, or was pulled.
func findImage(ctx context.Context, client *docker.Client) (repository, tag string, err error) {
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
