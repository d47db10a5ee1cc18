//go:build !unix

package fencectl

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
)

func newExec(lockFlags) *cobra.Command {
	cmd := newCommand("exec", func(*cobra.Command, []string) error {
		return cli.NotReady(errors.New("exec needs process groups and signals, which this system lacks"))
	})
	cmd.Args = cobra.ArbitraryArgs
	return cmd
}
