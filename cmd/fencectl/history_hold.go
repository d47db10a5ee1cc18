package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newHistoryHold(d *databaseFlags, out *cli.Output) *cobra.Command {
	var reason string
	var unknown bool
	cmd := &cobra.Command{
		Use:   "hold RESOURCE --reason TEXT [flags]",
		Short: "Keep the history of a resource from being pruned",
		Long: `Keep the history and the rejections of a resource from being pruned, until
"fencectl history release", and print the hold. RESOURCE is an exact name, not a
pattern. A second hold replaces the reason. Connect as the owner of the schema.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return historyHold(cmd, d, out, args[0], reason, unknown)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, at most 1000 bytes; required")
	cmd.Flags().BoolVar(&unknown, "unknown", false, "place the hold even if the resource has no history yet")
	return cmd
}

func historyHold(cmd *cobra.Command, d *databaseFlags, out *cli.Output, resource, reason string, unknown bool) error {
	if reason == "" {
		return cli.UsageErrorf("--reason is required")
	}
	if err := fence.ValidateResource(resource); err != nil {
		return cli.UsageErrorf("%w", err)
	}
	may := unknown
	placed := hold{Resource: resource, Reason: reason}
	err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		db, err := audit.Open(pool, d.schema)
		if err != nil {
			return err
		}
		if !unknown {
			if may, err = hasFence(ctx, db, resource); err != nil || !may {
				return err
			}
		}
		if err := postgres.HoldHistory(ctx, pool, d.schema, resource, reason); err != nil {
			return err
		}
		rows, err := readHolds(ctx, db, audit.Filter{Resource: resource})
		if len(rows) > 0 {
			placed = rows[0]
		}
		return err
	})
	if err != nil {
		return err
	}
	if !may {
		return cli.UsageErrorf("no resource %q has a history: names are exact here, not patterns; to place the hold nevertheless, add --unknown", resource)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "the history of %s is on hold\n", resource)
	return cli.WriteOne(cmd.OutOrStdout(), out.Format, placed)
}

// hasFence reports whether a resource was ever claimed.
func hasFence(ctx context.Context, db *audit.Database, resource string) (has bool, err error) {
	for _, err := range db.Fences(ctx, audit.Filter{Resource: resource}) {
		if err != nil {
			return false, err
		}
		has = true
	}
	return has, nil
}
