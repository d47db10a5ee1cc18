package main

import (
	"context"
	"fmt"
	"time"

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
	err := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool, db *audit.Database) (err error) {
		if !unknown {
			if may, err = hasFence(ctx, db, audit.Filter{Resource: resource}); err != nil || !may {
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
func hasFence(ctx context.Context, db *audit.Database, f audit.Filter) (has bool, err error) {
	for _, err := range db.Fences(ctx, f) {
		return err == nil, err
	}
	return false, nil
}

func newHistoryHolds(d *databaseFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "holds [flags]",
		Short: "Show the resources whose history is on hold",
		Long: `Show the resources whose history is on hold, since when, the role that gave the
reason, and the reason. The reader role is enough.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var holds []hold
			err := d.withHistory(cmd.Context(), func(ctx context.Context, _ *pgxpool.Pool, db *audit.Database) (err error) {
				holds, err = readHolds(ctx, db, audit.Filter{})
				return err
			})
			if err != nil {
				return err
			}
			if len(holds) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "no resource is on hold")
			}
			return cli.WriteList(cmd.OutOrStdout(), out.Format, holds)
		},
	}
}

// hold is a row of "history holds", and what "history hold" prints.
type hold struct {
	Resource string    `json:"resource"`
	At       time.Time `json:"at"`
	By       string    `json:"by"`
	Reason   string    `json:"reason"`
}

func (hold) Columns() []string { return []string{"resource", "at", "by", "reason"} }
func (h hold) Cells() []string {
	return []string{h.Resource, h.At.Format(time.RFC3339), h.By, h.Reason}
}

func readHolds(ctx context.Context, db *audit.Database, f audit.Filter) (holds []hold, err error) {
	for h, err := range db.Holds(ctx, f) {
		if err != nil {
			return nil, err
		}
		holds = append(holds, hold{Resource: h.Resource, At: h.At.UTC(), By: h.Role, Reason: h.Reason})
	}
	return holds, nil
}

func newHistoryRelease(d *databaseFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "release RESOURCE [flags]",
		Short: "End a hold",
		Long: `Let the history of a resource be pruned again, and print whether it was on hold.
RESOURCE is an exact name, not a pattern. Connect as the owner of the schema.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := released{Resource: args[0]}
			err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
				r.Released, err = postgres.ReleaseHistory(ctx, pool, d.schema, r.Resource)
				return err
			})
			if err != nil {
				return err
			}
			if r.Released {
				fmt.Fprintf(cmd.ErrOrStderr(), "the history of %s may be pruned again\n", r.Resource)
			} else {
				fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: the history of %s is not on hold; see \"fencectl history holds\"\n", r.Resource)
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, r)
		},
	}
}

// released is what "history release" prints.
type released struct {
	Resource string `json:"resource"`
	Released bool   `json:"released"`
}

func (released) Columns() []string { return []string{"resource", "released"} }
func (r released) Cells() []string { return []string{r.Resource, fmt.Sprint(r.Released)} }
