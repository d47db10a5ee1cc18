package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
)

func newHistory(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	cmd := cli.NewGroup("history", "Prune the history, or keep it as evidence")
	d.register(cmd.PersistentFlags(), time.Hour)
	cmd.PersistentPreRunE = d.prepare
	cmd.AddCommand(newHistoryPrune(d, out), newHistoryPolicy(d, out), newHistoryHold(d, out), newHistoryRelease(d, out), newHistoryHolds(d, out))
	return cmd
}
