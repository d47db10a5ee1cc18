package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newHistoryHold(d *databaseFlags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "hold RESOURCE --reason TEXT [flags]",
		Short: "Keep the history of a resource from being pruned",
		Long: `Keep the history and the rejections of a resource from being pruned, until
"fencectl history release". A second hold replaces the reason. Connect as the
owner of the schema.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return postgres.HoldHistory(ctx, pool, d.schema, args[0], reason)
			})
			if err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "the history of %s is on hold\n", args[0])
			}
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, at most 1000 bytes; required")
	return cmd
}

func newHistoryRelease(d *databaseFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "release RESOURCE [flags]",
		Short: "End a hold",
		Long: `Let the history of a resource be pruned again. Connect as the owner of the
schema.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var held bool
			err := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
				held, err = postgres.ReleaseHistory(ctx, pool, d.schema, args[0])
				return err
			})
			switch {
			case err != nil:
				return err
			case !held:
				fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: the history of %s is not on hold\n", args[0])
			default:
				fmt.Fprintf(cmd.ErrOrStderr(), "the history of %s may be pruned again\n", args[0])
			}
			return nil
		},
	}
}
