package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/cli/clitest"
)

func TestChaos_IsTheCommandBesideOrOnThePath(t *testing.T) {
	t.Parallel()
	self, err := os.ReadFile(os.Args[0])
	require.NoError(t, err)
	dir, onPath := t.TempDir(), t.TempDir()
	fencectl := filepath.Join(dir, "fencectl")
	writeProgram(t, fencectl, self)
	run := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		cmd := clitest.Child(t, []string{"PATH=" + onPath}, args...)
		cmd.Path, cmd.Args[0] = fencectl, fencectl
		cmd.Stdout, cmd.Stderr = &out, &errs
		return clitest.ExitCode(t, cmd.Run), out.String(), errs.String()
	}

	code, _, stderr := run("chaos", "run")
	require.Equal(t, cli.ExitNotReady, code)
	require.Contains(t, stderr, "fencectl: fencectl-chaos is not installed: it is neither in "+dir+" nor on the PATH. Install it with: go install github.com/fencekit/fencekit/cmd/fencectl-chaos@")

	says := func(dir, word string) {
		writeProgram(t, filepath.Join(dir, chaosProgram), []byte("#!/bin/sh\necho "+word+" \"$@\"\nexit 7\n"))
	}
	says(onPath, "path")
	for args, want := range map[string]string{
		"chaos run --seed 3 --help": "path run --seed 3 --help\n",
		"chaos":                     "path\n",
		"-o json chaos list":        "path -o json list\n",
		"help chaos run":            "path run --help\n",
	} {
		code, stdout, stderr := run(strings.Fields(args)...)
		require.Equal(t, 7, code, stderr)
		require.Equal(t, want, stdout)
	}
	says(dir, "beside")
	_, stdout, _ := run("chaos", "verify", "dir")
	require.Equal(t, "beside verify dir\n", stdout)
}

// writeProgram writes a program. No child process is started meanwhile, by any other test: it would have the
// file open for writing until it executes its own program, and what is open for writing can't be executed.
func writeProgram(t *testing.T, path string, text []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, text, 0o755))
}

func TestChaos_IsInstalledInTheSameVersion(t *testing.T) {
	t.Parallel()
	const module = "github.com/fencekit/fencekit/cmd/fencectl-chaos@"
	for version, want := range map[string]string{"v0.4.1": "v0.4.1", "v0.4.1+dirty": "latest", "(devel)": "latest", "": "latest"} {
		require.Equal(t, module+want, chaosModule(&debug.BuildInfo{Main: debug.Module{Version: version}}))
	}
	require.Equal(t, module+"latest", chaosModule(nil))
}
