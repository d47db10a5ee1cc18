//go:build !unix

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
)

func runHelper() {}

// newExec stands for "exec" where there are no process groups and signals.
func newExec() *cobra.Command {
	return &cobra.Command{
		Use:   "exec",
		Short: "Run a command while a resource is locked (not on this system)",
		Args:  cobra.ArbitraryArgs,
		RunE: func(*cobra.Command, []string) error {
			return cli.NotReady(errors.New("exec needs process groups and signals, which this system lacks"))
		},
	}
}
