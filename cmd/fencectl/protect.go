package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
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
	d.register(cmd.Flags(), time.Minute)
	cmd.PreRunE = d.prepare
	cmd.Flags().StringVar(&p.ResourceExpr, "resource", "", "the name of a row's resource, as an SQL expression `EXPR`; needed the first time")
	cmd.Flags().StringVar(&mode, "mode", "", "audit or enforce; if not given, as before, and audit the first time")
	return cmd
}

type protection struct {
	Table    string               `json:"table"`
	Mode     postgres.ProtectMode `json:"mode"`
	Resource string               `json:"resource"`
}

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
	d.register(cmd.Flags(), time.Minute)
	cmd.PreRunE = d.prepare
	return cmd
}

type unprotected struct {
	Table       string `json:"table"`
	Unprotected bool   `json:"unprotected"`
}

func newProtected(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	writes := false
	cmd := &cobra.Command{
		Use:   "protected [flags]",
		Short: "Show the protected tables, or recorded unguarded writes",
		Long: `Show the protected tables, what is wrong with their triggers or with the check
at COMMIT, and how many unguarded writes were recorded in audit mode: one for
each transaction and resource. With --writes, show those writes instead, the
latest first. The reader role is enough. The exit code is 1 if a protection is
not intact.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if writes {
				return listUnguarded(cmd, d, out)
			}
			return listProtected(cmd, d, out)
		},
	}
	d.register(cmd.Flags(), time.Minute)
	cmd.PreRunE = d.prepare
	cmd.Flags().BoolVar(&writes, "writes", false, "show the unguarded writes that were recorded in audit mode")
	return cmd
}

func listProtected(cmd *cobra.Command, d *databaseFlags, out *cli.Output) error {
	var rows []protectedTable
	var repairs []string
	broken := 0
	err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		tables, err := postgres.ListProtected(ctx, pool, d.schema)
		for _, t := range tables {
			rows = append(rows, protectedTable{protection{t.Table, t.Mode, t.ResourceExpr}, t.Problem, t.UnguardedWrites, t.LastAt})
			if t.Problem != "" {
				broken++
				repairs = append(repairs, d.repairs(t)...)
			}
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
	if broken == 0 {
		return nil
	}
	slices.Sort(repairs)
	return cli.Final(cli.ExitViolated, fmt.Errorf("%d of %d tables are not fully protected: run\n  %s", broken, len(rows), strings.Join(slices.Compact(repairs), "\n  ")))
}

// repairs returns the commands that repair a table's broken protection. The check at COMMIT belongs to the
// schema: "doctor" prints the SQL that restores it.
func (d *databaseFlags) repairs(t postgres.ProtectedTable) (commands []string) {
	table, schema := doctor.ShellWord(t.Table), ""
	if d.schema != postgres.DefaultSchema {
		schema = " --schema " + doctor.ShellWord(d.schema)
	}
	if strings.Contains(t.Problem, "the check at COMMIT") {
		commands = append(commands, "fencectl doctor"+schema)
	}
	switch {
	case t.Problem == "the table is gone":
		commands = append(commands, "fencectl unprotect "+table+schema)
	case !strings.HasPrefix(t.Problem, "the check at COMMIT"):
		commands = append(commands, "fencectl protect "+table+schema)
	}
	return commands
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
		fmt.Fprintln(cmd.ErrOrStderr(), "no unguarded write was recorded")
	}
	return cli.WriteList(cmd.OutOrStdout(), out.Format, rows)
}

type protectedTable struct {
	protection
	Problem         string     `json:"problem,omitempty"`
	UnguardedWrites int64      `json:"unguarded_writes" column:"unguarded"`
	LastAt          *time.Time `json:"last_at,omitempty" column:"last"`
}

type unguardedWrite struct {
	Table       string    `json:"table"`
	Resource    string    `json:"resource"`
	Kind        string    `json:"kind"`
	Role        string    `json:"role"`
	Application string    `json:"application"`
	Records     int64     `json:"records"`
	FirstAt     time.Time `json:"first_at" column:"first"`
	LastAt      time.Time `json:"last_at" column:"last"`
}
