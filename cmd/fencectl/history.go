package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence"
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

// withHistory is withDatabase for arguments that only the call can judge.
func (d *databaseFlags) withHistory(ctx context.Context, do func(context.Context, *pgxpool.Pool) error) error {
	err := d.withDatabase(ctx, do)
	if errors.Is(err, fence.ErrInvalid) {
		return cli.UsageErrorf("%w", err)
	}
	return err
}
