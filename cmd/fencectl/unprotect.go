package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newUnprotect(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	cmd := &cobra.Command{
		Use:   "unprotect TABLE [flags]",
		Short: "Remove what protect has put on a table",
		Long: `Remove the triggers of "fencectl protect", and print whether there were any. The
table is as it was before. A table that was dropped goes by the name that
"fencectl protected" shows, or by its OID. Connect as the owner of the schema
and of the table.`,
		Args: cli.OneArg("TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u := unprotected{Table: args[0]}
			err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
				u.Unprotected, err = postgres.Unprotect(ctx, pool, d.schema, u.Table)
				return err
			})
			if err != nil {
				return err
			}
			if !u.Unprotected {
				fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: %s is not protected; see \"fencectl protected\"\n", u.Table)
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, u)
		},
	}
	d.registerOn(cmd)
	return cmd
}

// unprotected is what "unprotect" prints.
type unprotected struct {
	Table       string `json:"table"`
	Unprotected bool   `json:"unprotected"`
}

func (unprotected) Columns() []string { return []string{"table", "unprotected"} }
func (u unprotected) Cells() []string { return []string{u.Table, fmt.Sprint(u.Unprotected)} }
