package pgserver

import (
	"cmp"
	"context"
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

type binaries struct {
	dir     string // has postgres and initdb
	version string // as "15.18"
}

// FindBinaries returns the directory that has postgres and initdb, and their version, as "15.18":
// those that Start would run with Config.Local. It fails with *process.NotFoundError if there is
// none.
func FindBinaries(ctx context.Context) (dir, version string, err error) {
	found, err := findBinaries(ctx, installPlaces)
	return found.dir, found.version, err
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
// places. Its error has what was tried.
func findBinaries(ctx context.Context, places []string) (binaries, error) {
	installed := process.Installed{
		Server: "Postgres", Places: []string{"postgres"}, Advice: advice,
		Version: regexp.MustCompile(`\(PostgreSQL\) (\d\S*)`), Usable: usable,
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		places = append([]string{strings.TrimSpace(string(out))}, places...)
	}
	for _, place := range places {
		dirs, _ := filepath.Glob(place) // the patterns are well-formed
		if len(dirs) == 0 {
			dirs = []string{place} // for the list of what was tried
		}
		for _, dir := range newestFirst(dirs) {
			installed.Places = append(installed.Places, filepath.Join(dir, "postgres"))
		}
	}
	path, version, err := installed.Find(ctx)
	if err != nil {
		return binaries{}, err
	}
	path, err = filepath.EvalSymlinks(path)
	return binaries{filepath.Dir(path), version}, err
}

func usable(path, version string) error {
	if major, err := strconv.Atoi(digits.FindString(version)); err != nil || major < oldestVersion {
		return fmt.Errorf("%s is version %s, needed is %d or later", path, version, oldestVersion)
	}
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(filepath.Dir(path), "initdb"))
	return err
}

var digits = regexp.MustCompile(`\d+`)

// newestFirst sorts directories by the version in their names; one without a number comes last.
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
