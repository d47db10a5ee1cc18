package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

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
