package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// Environment variables that choose the Postgres.
const (
	// DSNVar names an existing server. It is used or failed, never
	// skipped, and never stopped.
	DSNVar = "FENCEKIT_POSTGRES_DSN"
	// wayVar is "local" or "docker" to allow that way only.
	wayVar = "FENCEKIT_POSTGRES"
)

const advice = "sudo apt-get install postgresql | sudo dnf install postgresql-server | brew install postgresql@17" +
	"\nor start Docker, or name a server: " + DSNVar + "=postgres://user:password@host/database"

// Config says how to run Postgres. nil means all defaults. Unless Local is
// set it says nothing to a server that FENCEKIT_POSTGRES_DSN names.
type Config struct {
	// Settings are parameters of the server, added to those of every server
	// of this package (fsync on, 200 connections, wal_level logical, UTC) and
	// stronger than they. Default: none.
	Settings map[string]string
	// Local asks for one of the binaries on this machine, whatever the
	// environment says: a server whose files can be copied (CopyData), that can
	// have a standby (StartStandby).
	Local bool
}

// Start returns a Postgres that answers; it must be stopped by Stop.
// It is, in this order: the server that FENCEKIT_POSTGRES_DSN names; one of
// the binaries on this machine, on a data directory of its own; a container.
// The choice is printed to stderr, once. It fails with *process.NotFoundError if
// there is none of these. ctx bounds the start alone.
func Start(ctx context.Context, cfg *Config) (*Server, error) {
	c := *cmp.Or(cfg, &Config{})
	dsn, way := os.Getenv(DSNVar), os.Getenv(wayVar)
	if c.Local {
		dsn, way = "", "local"
	}
	if dsn != "" {
		return useExternal(ctx, dsn)
	}
	if way != "" && way != "local" && way != "docker" {
		return nil, fmt.Errorf("testenv: %s=%s: must be local, docker or empty", wayVar, way)
	}
	none := &process.NotFoundError{Server: "Postgres", Advice: advice}
	if way != "docker" {
		found, err := findBinaries(ctx, installPlaces)
		if err == nil {
			var p *Server
			if p, err = startLocal(ctx, found, c, initData); err == nil {
				return p.announce(), nil
			}
			// Another is used in its place.
			process.Announce("Postgres", fmt.Sprintf("local %s does not start: %v", found.dir, err))
		}
		if !errors.As(err, &none) {
			none.Attempts = []process.Attempt{{Where: found.dir, Err: err}}
		}
	}
	if way != "local" {
		p, err := startDocker(ctx, c)
		if err == nil {
			return p.announce(), nil
		}
		none.Attempts = append(none.Attempts, process.Attempt{Where: "Docker", Err: err})
	}
	return nil, none
}

func (p *Server) announce() *Server {
	process.Announce("Postgres", p.source)
	return p
}

// useExternal uses the server that FENCEKIT_POSTGRES_DSN names.
func useExternal(ctx context.Context, dsn string) (*Server, error) {
	p := &Server{Controller: process.External(DSNVar), dsn: dsn, source: DSNVar}
	if _, err := pgx.ParseConfig(dsn); err != nil {
		return nil, fmt.Errorf("testenv: %s: %w", DSNVar, err)
	}
	ctx, cancel := context.WithTimeout(ctx, process.StartBound)
	defer cancel()
	if err := p.ping(ctx); err != nil {
		return nil, fmt.Errorf("testenv: %s is set and its server does not answer: %w", DSNVar, err)
	}
	return p.announce(), nil
}

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
	c, err := process.NewContainer("postgres")
	if err != nil {
		return nil, err
	}
	p := &Server{
		Controller: c,
		dsn:        "postgres://postgres@" + c.Address(0) + "/postgres?sslmode=disable",
		source:     "docker " + image,
	}
	program := process.Program{
		Ready:       func(ctx context.Context) error { return process.Poll(ctx, p.ping) },
		StopSignals: []syscall.Signal{syscall.SIGINT},
	}
	return p, c.Start(ctx, program, append([]string{
		"--publish", c.Address(0) + ":5432", "--env", "POSTGRES_HOST_AUTH_METHOD=trust", image, "postgres",
	}, settingArgs(cfg.Settings)...)...)
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
