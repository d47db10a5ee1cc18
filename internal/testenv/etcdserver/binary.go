package etcdserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fencekit/fencekit/internal/testenv/process"
)

const (
	// binaryVar names a build of etcdPackage.
	binaryVar   = "FENCEKIT_ETCD_BINARY"
	module      = "github.com/fencekit/fencekit"
	etcdPackage = module + "/internal/testenv/cmd/etcd"
)

func command(dir *process.Dir, proxy string, args ...string) (*exec.Cmd, error) {
	binary := os.Getenv(binaryVar)
	if binary == "" {
		var err error
		if binary, err = findBinary(); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = process.Environ("ETCD_")
	cmd.Dir = dir.Path("")
	if proxy != "" {
		cmd.Env = append(cmd.Env, "HTTP_PROXY="+proxy, "http_proxy="+proxy, "NO_PROXY=", "no_proxy=")
	}
	return cmd, nil
}

// findBinary returns the etcd beside this program, or else the one that the go command builds into its cache.
// Linking a server into each program that starts one would take longer than most tests.
var findBinary = sync.OnceValues(func() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), "etcd")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	// This module may be one that the caller's requires: as the main module it has all that etcd needs in its go.sum.
	source, err := goCommand("list", "-m", "-f", "{{.Dir}}", module)
	if err == nil && source == "" {
		err = errors.New("the source of " + module + " is not here")
	}
	if err == nil {
		var built string
		if built, err = goCommand("tool", "-C", source, "-n", etcdPackage); err == nil {
			return built, nil
		}
	}
	return "", fmt.Errorf("testenv: found no etcd to run: %s is not set, there is no %s, and the go command can't build one here: %w\n"+
		"build one beside the program: go install %s@latest", binaryVar, beside, err, etcdPackage)
})

func goCommand(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = os.Environ()
	if args[0] == "tool" {
		cmd.Env = append(cmd.Env, "GOFLAGS=-mod=readonly -buildvcs=false", "GOWORK=off")
	}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, said.String())
	}
	return strings.TrimSpace(string(out)), nil
}
