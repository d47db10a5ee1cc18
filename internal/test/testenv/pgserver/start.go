package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

// Environment variables that choose the Postgres.
const (
	// DSNVar names an existing server, as a URL. It is used or failed, never
	// skipped, and never stopped.
	DSNVar = "FENCEKIT_POSTGRES_DSN"
	// wayVar is "local" or "docker" to allow that way only.
	wayVar = "FENCEKIT_POSTGRES"
)

const advice = "sudo apt-get install postgresql | sudo dnf install postgresql-server | brew install postgresql@17" +
	"\nor start Docker, or name a server: " + DSNVar + "=postgres://user:password@host/database"

// oldestVersion is the first major version that Fencekit supports.
const oldestVersion = 15

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

// arguments are those of every server that this package starts. fsync stays on, as in production, except on the
// shared server (unsynced), and a killed server leaves no shared memory in /dev/shm.
func (c *Config) arguments() (args []string) {
	settings := map[string]string{
		"max_connections":            "200",
		"wal_level":                  "logical",
		"dynamic_shared_memory_type": "mmap",
		"log_line_prefix":            "%m [%p] %q%d ",
		"timezone":                   "UTC",
	}
	if c != nil {
		maps.Copy(settings, c.Settings)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

// Start returns a Postgres that answers; it must be stopped by Stop.
// It is, in this order: the server that FENCEKIT_POSTGRES_DSN names; one of
// the binaries on this machine, on a data directory of its own; a container.
// The choice is printed to stderr, once. It fails with *process.NotFoundError if
// there is none of these. ctx bounds the start alone.
func Start(ctx context.Context, cfg *Config) (p *Server, err error) {
	dsn, way := os.Getenv(DSNVar), os.Getenv(wayVar)
	if cfg != nil && cfg.Local {
		dsn, way = "", "local"
	}
	switch {
	case dsn != "":
		p, err = useExternal(ctx, dsn)
	case !slices.Contains([]string{"", "local", "docker"}, way):
		err = fmt.Errorf("testenv: %s=%s: must be local, docker or empty", wayVar, way)
	default:
		p, err = startOne(ctx, way, cfg)
	}
	return p, err
}

func startOne(ctx context.Context, way string, cfg *Config) (*Server, error) {
	none := &process.NotFoundError{Server: "Postgres", Advice: advice}
	if way != "docker" {
		p, err := startLocal(ctx, cfg, copyEmptyCluster)
		if err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("testenv: starting Postgres: %w: %w", context.Cause(ctx), err)
		}
		if !errors.As(err, &none) { // there is one that doesn't start
			none.Tried = []error{err}
			process.Announce("Postgres", err.Error())
		}
	}
	if way != "local" {
		p, err := startDocker(ctx, cfg)
		if err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("testenv: starting Postgres in Docker: %w: %w", context.Cause(ctx), err)
		}
		none.Tried = append(none.Tried, fmt.Errorf("in Docker: %w", err))
	}
	return nil, none
}

// useExternal uses the server that FENCEKIT_POSTGRES_DSN names.
func useExternal(ctx context.Context, dsn string) (*Server, error) {
	if _, err := pgx.ParseConfig(dsn); err != nil || !strings.Contains(dsn, "://") {
		return nil, errors.New("testenv: " + DSNVar + ": want postgres://user:password@host/database")
	}
	ctx, cancel := context.WithTimeout(ctx, process.StartBound)
	defer cancel()
	p := &Server{Server: process.External(DSNVar), dsn: dsn}
	if err := p.ping(ctx); err != nil {
		return nil, fmt.Errorf("testenv: %s is set and its server does not answer: %w", DSNVar, err)
	}
	p.Announce("Postgres", DSNVar)
	return p, nil
}

// Some tests run the server's own programs, so a Docker that answers isn't enough unless the environment asks for it.
func init() {
	process.Needs("Postgres", func(ctx context.Context) error {
		if os.Getenv(DSNVar) != "" || os.Getenv(wayVar) == "docker" {
			return nil
		}
		_, _, err := FindBinaries(ctx)
		return err
	})
}

// FindBinaries returns the directory that has postgres and initdb, and their version, as "15.18":
// those that Start would run with Config.Local. It fails with *process.NotFoundError if there is
// none.
func FindBinaries(ctx context.Context) (dir, version string, err error) {
	return findBinaries(ctx, installPlaces)
}

// Program returns the path of a program that comes with the server's, such as psql.
func Program(ctx context.Context, name string) (string, error) {
	dir, _, err := FindBinaries(ctx)
	if err != nil {
		return "", err
	}
	return exec.LookPath(filepath.Join(dir, name))
}

// installPlaces are where packages put servers that aren't on the PATH: Debian,
// RHEL, Homebrew on either processor, and Postgres.app.
var installPlaces = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// findBinaries returns the first usable server: on the PATH, where pg_config says, or at one of the
// places, the newest first. Its error has what was tried.
func findBinaries(ctx context.Context, places []string) (dir, version string, err error) {
	installed := process.Installed{Server: "Postgres", Places: []string{"postgres"}, Advice: advice, Usable: usable}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		places = append([]string{strings.TrimSpace(string(out))}, places...)
	}
	for _, place := range places {
		dirs, _ := filepath.Glob(place) // the patterns are well-formed
		if len(dirs) == 0 {
			dirs = []string{place} // for the list of what was tried
		}
		slices.SortStableFunc(dirs, func(a, b string) int { return cmp.Compare(majorOf(b), majorOf(a)) })
		for _, dir := range dirs {
			installed.Places = append(installed.Places, filepath.Join(dir, "postgres"))
		}
	}
	path, version, err := installed.Find(ctx)
	if err != nil {
		return "", "", err
	}
	path, err = filepath.EvalSymlinks(path)
	return filepath.Dir(path), version, err
}

func usable(path, version string) error {
	if major(version) < oldestVersion {
		return fmt.Errorf("version %s, needed is %d or later", version, oldestVersion)
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(filepath.Dir(path), "initdb"))
	return err
}

var digits = regexp.MustCompile(`\d+`)

// majorOf is the version in the name of an installation, as /usr/lib/postgresql/17/bin.
func majorOf(bin string) int { return major(filepath.Base(filepath.Dir(bin))) }

// major is the first number of a text; 0 without one.
func major(text string) int {
	n, _ := strconv.Atoi(digits.FindString(text))
	return n
}

// Images of Postgres: the stand-in that "make images" builds where nothing can
// be pulled, else the official one.
const (
	standInImage  = "fencekit/postgres:15"
	officialImage = "postgres:17"
)

// startDocker runs a Postgres image with its port on the loopback.
func startDocker(ctx context.Context, cfg *Config) (*Server, error) {
	if err := process.FindDocker(ctx); err != nil {
		return nil, err
	}
	image, err := findImage(ctx)
	if err != nil {
		return nil, err
	}
	p, err := newServer()
	if err != nil {
		return nil, err
	}
	program := process.Program{Ready: p.ping, StopSignals: []syscall.Signal{syscall.SIGINT}}
	err = p.StartContainer(ctx, program, append([]string{
		"--publish", p.Address(0) + ":5432", "--env", "POSTGRES_HOST_AUTH_METHOD=trust", image, "postgres",
	}, cfg.arguments()...)...)
	if err != nil {
		return nil, err
	}
	p.Announce("Postgres", "docker "+image)
	return p, nil
}

// findImage is an image that is on this machine, or was pulled.
func findImage(ctx context.Context) (string, error) {
	for _, image := range []string{standInImage, officialImage} {
		if process.Docker(ctx, "image", "inspect", image) == nil {
			return image, nil
		}
	}
	fmt.Fprintf(os.Stderr, "testenv: pulling the image %s\n", officialImage)
	if err := process.Docker(ctx, "pull", officialImage); err != nil {
		return "", fmt.Errorf("pull %s (make images builds a stand-in): %w", officialImage, err)
	}
	return officialImage, nil
}
