package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/test/testenv/process"
)

const (
	// binaryVar names a build of etcdPackage.
	binaryVar   = "FENCEKIT_ETCD_BINARY"
	module      = "github.com/fencekit/fencekit"
	etcdDir     = "internal/test/testenv/cmd/etcd" // of a module of its own, so that users of this one don't have to require a server
	etcdPackage = module + "/" + etcdDir
)

func init() {
	process.Needs("etcd", func(context.Context) error {
		_, err := findBinary()
		return err
	})
}

// findBinary returns the etcd that the environment names, the one beside this program, or else the one that the go
// command builds into its cache. Linking a server into each program that starts one would take longer than most tests.
func findBinary() (string, error) {
	if named := os.Getenv(binaryVar); named != "" {
		return named, nil
	}
	return besideOrBuilt()
}

var besideOrBuilt = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "etcd")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	built, err := build(etcdPackage)
	if err != nil {
		err = fmt.Errorf("testenv: found no etcd to run: %s is not set, there is no %s, and the go command can't build one here: %w\n"+
			"build one beside the program: go install %s@latest", binaryVar, beside, err, etcdPackage)
	}
	return built, err
})

// Etcdctl returns the path of etcd's own etcdctl, of the version that etcd's go.mod names. The first use builds it, which
// may download modules. The test fails if that does, with what to run.
func Etcdctl(t testing.TB) string {
	t.Helper()
	built, err := build("go.etcd.io/etcd/etcdctl/v3")
	require.NoError(t, err, "building etcdctl needs the go command and, the first time, a module proxy")
	return built
}

// build has the go command build a tool of etcd's module into its cache, and returns where it is.
func build(tool string) (string, error) {
	source, err := goCommand("list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return "", err
	}
	if source == "" {
		return "", errors.New("the source of " + module + " is not here")
	}
	return goCommand("tool", "-C", filepath.Join(source, etcdDir), "-n", tool)
}

func goCommand(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	if args[0] == "tool" {
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off")
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}
