package main

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newProtect(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	p := postgres.Protection{}
	mode := ""
	cmd := &cobra.Command{
		Use:   "protect TABLE [flags]",
		Short: "Reject, or record, unguarded writes to a table",
		Long: `Put triggers on a table, and print how it is protected. With --mode audit they
record each write outside a guarded transaction of the row's own resource; see
"fencectl protected --writes". With --mode enforce they reject it. EXPR gives
the resource of a row as SQL over its columns, such as "'sku/' || sku".

Run it again to change the protection, to repair it, and after adding a
partition: flags that are not given leave what is there. Connect as the owner of
the schema and of the table.`,
		Args: cli.OneArg("TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]postgres.ProtectMode{"", postgres.ProtectAudit, postgres.ProtectEnforce}, postgres.ProtectMode(mode)) {
				return cli.UsageErrorf("--mode is %q, want audit or enforce", mode)
			}
			var now postgres.Protection
			p.Table, p.Mode = args[0], postgres.ProtectMode(mode)
			err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
				now, err = postgres.Protect(ctx, pool, d.schema, p)
				return err
			})
			if err != nil {
				return err
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, protection{now.Table, now.Mode, now.ResourceExpr})
		},
	}
	d.registerOn(cmd)
	cmd.Flags().StringVar(&p.ResourceExpr, "resource", "", "the name of a row's resource, as an SQL expression `EXPR`; needed the first time")
	cmd.Flags().StringVar(&mode, "mode", "", "audit or enforce; if not given, as before, and audit the first time")
	return cmd
}

// protection is what "protect" prints.
type protection struct {
	Table    string               `json:"table"`
	Mode     postgres.ProtectMode `json:"mode"`
	Resource string               `json:"resource"`
}

func (protection) Columns() []string { return []string{"table", "mode", "resource"} }
func (p protection) Cells() []string { return []string{p.Table, string(p.Mode), p.Resource} }
