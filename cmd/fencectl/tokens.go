package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
)

func newTokens(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	cmd := cli.NewGroup("tokens", "Show the history of resources")
	d.register(cmd.PersistentFlags(), time.Hour)
	cmd.PersistentPreRunE = d.prepare
	cmd.AddCommand(newTokensHistory(d, out))
	return cmd
}
