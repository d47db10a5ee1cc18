package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/fencekit/fencekit/bench/internal/delay"
	"github.com/fencekit/fencekit/bench/internal/load"
	"github.com/fencekit/fencekit/bench/internal/scenario"
)

// roleVar makes a process of this program one that another has started.
const roleVar = "FENCEKIT_BENCH_ROLE"

// The roles.
const (
	roleWorker = "worker"
	roleLinks  = "links"
)

// playRole returns at once unless this process has a role; then it plays that and doesn't
// return.
func playRole() {
	var err error
	switch role := os.Getenv(roleVar); role {
	case "":
		return
	case roleWorker:
		err = load.Serve(context.Background(), os.Stdin, os.Stdout, scenario.Find)
	case roleLinks:
		err = delay.Serve(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("%s=%s: no such role", roleVar, role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// inRole returns what runs this program in a role.
func inRole(role string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), roleVar+"="+role)
		return cmd, nil
	}
}
