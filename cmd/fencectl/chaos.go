package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
)

// chaosProgram is the program that "fencectl chaos" runs. It is separate because it
// contains test code.
const chaosProgram = "fencectl-chaos"

func newChaos() *cobra.Command {
	return &cobra.Command{
		Use:                "chaos COMMAND [flags]",
		Short:              "Run Fencekit under real faults, by " + chaosProgram,
		DisableFlagParsing: true, // the other program parses them
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := findChaos()
			if err != nil {
				return err
			}
			err = syscall.Exec(path, append([]string{path}, args...), os.Environ()) // replaces this process
			return cli.NotReady(fmt.Errorf("%s can't be run: %w", path, err))
		},
	}
}

func findChaos() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), chaosProgram)
	if path, err := exec.LookPath(beside); err == nil {
		return path, nil
	}
	if path, err := exec.LookPath(chaosProgram); err == nil {
		return path, nil
	}
	build, _ := debug.ReadBuildInfo()
	return "", cli.NotReady(fmt.Errorf("%s is not installed: it is neither in %s nor on the PATH. Install it with: go install %s",
		chaosProgram, filepath.Dir(self), chaosModule(build)))
}

func chaosModule(build *debug.BuildInfo) string {
	version := cli.ModuleVersion(build)
	if !strings.HasPrefix(version, "v") || strings.Contains(version, "+") {
		version = "latest"
	}
	return "github.com/fencekit/fencekit/cmd/" + chaosProgram + "@" + version
}
