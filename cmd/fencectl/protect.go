package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newProtect(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	p := postgres.Protection{}
	mode := ""
	cmd := &cobra.Command{
		Use:   "protect TABLE --resource EXPR [flags]",
		Short: "Reject, or record, writes of a table past the guard",
		Long: `Put triggers on a table, and print how it is protected. With --mode audit they
record each write outside a guarded transaction of the row's own resource; see
"fencectl protected --writes". With --mode enforce they reject it. EXPR gives the
resource of a row as SQL over its columns, such as "'sku/' || sku". Run it again to
change that, to repair it, and after adding a partition. Connect as the owner of
the schema and of the table.`,
		Args: cli.OneArg("TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if p.Resource == "" {
				return cli.UsageErrorf("--resource is required")
			}
			p.Table, p.Mode = args[0], postgres.ProtectMode(mode)
			err := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				return postgres.Protect(ctx, pool, d.schema, p)
			})
			if err != nil {
				return err
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, protection(p))
		},
	}
	d.registerAt(cmd)
	cmd.Flags().StringVar(&p.Resource, "resource", "", "the name of a row's resource, as an SQL expression; required")
	cmd.Flags().StringVar(&mode, "mode", string(postgres.ProtectAudit), "audit or enforce")
	return cmd
}

// registerAt adds the flags to a command that is in no group of commands which share them.
func (d *databaseFlags) registerAt(cmd *cobra.Command) {
	own := pflag.NewFlagSet("database", pflag.ContinueOnError)
	d.register(own, time.Minute)
	cmd.Flags().AddFlagSet(own)
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.FillFromVariables(own); err != nil {
			return err
		}
		return d.prepare(cmd, args)
	}
}

// protection is what "protect" prints.
type protection postgres.Protection

func (protection) Columns() []string { return []string{"table", "mode", "resource"} }
func (p protection) Cells() []string { return []string{p.Table, string(p.Mode), p.Resource} }

func newUnprotect(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	cmd := &cobra.Command{
		Use:   "unprotect TABLE [flags]",
		Short: "Remove what protect has put on a table",
		Long: `Remove the triggers of "fencectl protect", and print whether there were any. The
table is as it was before. Connect as the owner of the schema and of the table.`,
		Args: cli.OneArg("TABLE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			u := unprotected{Table: args[0]}
			err := d.withHistory(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
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
	d.registerAt(cmd)
	return cmd
}

// unprotected is what "unprotect" prints.
type unprotected struct {
	Table       string `json:"table"`
	Unprotected bool   `json:"unprotected"`
}

func (unprotected) Columns() []string { return []string{"table", "unprotected"} }
func (u unprotected) Cells() []string { return []string{u.Table, fmt.Sprint(u.Unprotected)} }

func newProtected(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	writes := false
	cmd := &cobra.Command{
		Use:   "protected [flags]",
		Short: "Show the protected tables, or what was written past the guard",
		Long: `Show the protected tables: whether their triggers are intact, and how many writes
past the guard were recorded in audit mode. --writes shows those writes, the latest
first: their count is that of transactions. The reader role is enough. Exit code 1:
a protection is not intact.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if writes {
				return listUnguarded(cmd, d, out)
			}
			return listProtected(cmd, d, out)
		},
	}
	d.registerAt(cmd)
	cmd.Flags().BoolVar(&writes, "writes", false, "show the writes that were recorded in audit mode")
	return cmd
}

func listProtected(cmd *cobra.Command, d *databaseFlags, out *cli.Output) error {
	var rows []protectedTable
	err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		tables, err := postgres.Protected(ctx, pool, d.schema)
		for _, t := range tables {
			rows = append(rows, protectedTable(t))
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no table is protected")
	}
	if err := cli.WriteList(cmd.OutOrStdout(), out.Format, rows); err != nil {
		return err
	}
	for _, t := range rows {
		if t.Problem != "" {
			return cli.Final(cli.ExitViolated, fmt.Errorf("%s is not fully protected: %s; run \"fencectl protect\" again", t.Table, t.Problem))
		}
	}
	return nil
}

func listUnguarded(cmd *cobra.Command, d *databaseFlags, out *cli.Output) error {
	var rows []unguardedWrite
	err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		all, err := postgres.UnguardedWrites(ctx, pool, d.schema)
		for _, w := range all {
			rows = append(rows, unguardedWrite(w))
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no write past the guard was recorded")
	}
	return cli.WriteList(cmd.OutOrStdout(), out.Format, rows)
}

type protectedTable postgres.ProtectedTable

func (protectedTable) Columns() []string {
	return []string{"table", "mode", "resource", "intact", "unguarded", "last"}
}

func (t protectedTable) Cells() []string {
	last := ""
	if t.LastAt != nil {
		last = t.LastAt.UTC().Format(time.RFC3339)
	}
	return []string{t.Table, string(t.Mode), t.Resource, fmt.Sprint(t.Problem == ""), strconv.FormatInt(t.Unguarded, 10), last}
}

type unguardedWrite postgres.UnguardedWrite

func (unguardedWrite) Columns() []string {
	return []string{"table", "resource", "kind", "role", "count", "first", "last"}
}

func (w unguardedWrite) Cells() []string {
	return []string{w.Table, w.Resource, w.Kind, w.Role, strconv.FormatInt(w.Count, 10), w.FirstAt.UTC().Format(time.RFC3339), w.LastAt.UTC().Format(time.RFC3339)}
}
