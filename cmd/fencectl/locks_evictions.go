package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/fence/etcd/inspect"
	"github.com/fencekit/fencekit/internal/cli"
)

func newLocksEvictions(l *locksFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "evictions [flags]",
		Short: "Show the evictions of the last 90 days",
		Long: `Show who was evicted in the last 90 days, from what, by whom and why, by
resource.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all []inspect.Eviction
			err := l.withInspector(cmd.Context(), func(ctx context.Context, inspector *inspect.Inspector) (err error) {
				all, err = inspector.Evictions(ctx)
				return err
			})
			if err != nil {
				return err
			}
			rows := make([]eviction, len(all))
			for i, e := range all {
				rows[i] = evictionOf(e)
			}
			return cli.WriteList(cmd.OutOrStdout(), out.Format, rows)
		},
	}
}
