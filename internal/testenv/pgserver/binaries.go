package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

// oldestVersion is the first major version that Fencekit supports.
const oldestVersion = 14

// binaries is an installed Postgres server.
type binaries struct {
	dir     string // has postgres and initdb
	version string // as "15.18"
}

// FindBinaries returns the directory that has postgres and initdb, and their version, as
// "15.18": those that Start would run with Config.Local. It fails with
// *process.NotFoundError if there is none.
func FindBinaries(ctx context.Context) (dir, version string, err error) {
	found, tried := findBinaries(ctx, installPlaces)
	if found == nil {
		return "", "", &process.NotFoundError{Server: "Postgres", Attempts: tried, Advice: advice}
	}
	return found.dir, found.version, nil
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

// findBinaries returns the first usable server, and what was tried before it.
func findBinaries(ctx context.Context, places []string) (found *binaries, tried []process.Attempt) {
	if path, err := exec.LookPath("postgres"); err != nil {
		tried = append(tried, process.Attempt{Where: "PATH", Err: errors.New("no postgres")})
	} else if path, err = filepath.EvalSymlinks(path); err != nil {
		tried = append(tried, process.Attempt{Where: "PATH", Err: err})
	} else if found, tried = tryBinaries(ctx, "PATH", filepath.Dir(path), tried); found != nil {
		return found, tried
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err != nil {
		tried = append(tried, process.Attempt{Where: "pg_config --bindir", Err: err})
	} else if found, tried = tryBinaries(ctx, "pg_config --bindir", strings.TrimSpace(string(out)), tried); found != nil {
		return found, tried
	}
	for _, place := range places {
		dirs, _ := filepath.Glob(place) // the patterns are well-formed
		if len(dirs) == 0 {
			tried = append(tried, process.Attempt{Where: place, Err: errors.New("nothing there")})
		}
		for _, dir := range newestFirst(dirs) {
			if found, tried = tryBinaries(ctx, place, dir, tried); found != nil {
				return found, tried
			}
		}
	}
	return nil, tried
}

// tryBinaries looks at one directory; a failure is added to tried.
func tryBinaries(ctx context.Context, where, dir string, tried []process.Attempt) (*binaries, []process.Attempt) {
	found, err := inspectBinaries(ctx, dir)
	if err != nil {
		return nil, append(tried, process.Attempt{Where: where, Err: err})
	}
	return found, tried
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// inspectBinaries checks that a directory has a server that is new enough.
func inspectBinaries(ctx context.Context, dir string) (*binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return nil, err
	}
	version := versionText.FindStringSubmatch(string(out))
	if version == nil {
		return nil, fmt.Errorf("%s/postgres --version says %q", dir, strings.TrimSpace(string(out)))
	}
	if major, err := strconv.Atoi(version[2]); err != nil || major < oldestVersion {
		return nil, fmt.Errorf("%s is version %s, needed is %d or later", dir, version[1], oldestVersion)
	}
	return &binaries{dir, version[1]}, nil
}

var digits = regexp.MustCompile(`\d+`)

// newestFirst sorts the directories that one pattern matched by the version in
// their names; one without a number comes last.
func newestFirst(dirs []string) []string {
	major := func(dir string) int {
		numbers := digits.FindAllString(dir, -1)
		if len(numbers) == 0 {
			return 0
		}
		n, _ := strconv.Atoi(numbers[len(numbers)-1]) // out of range is the largest int
		return n
	}
	return slices.SortedStableFunc(slices.Values(dirs), func(a, b string) int { return cmp.Compare(major(b), major(a)) })
}
