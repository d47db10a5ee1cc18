package fencectl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newProtect() *cobra.Command {
	d := &databaseFlags{timeout: time.Minute}
	p := postgres.Protection{}
	cmd := newCommand("protect", func(cmd *cobra.Command, args []string) error {
		p.Table = args[0]
		now, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) (postgres.Protection, error) {
			return postgres.Protect(ctx, db.Pool, d.schema, p)
		})
		if err != nil {
			return err
		}
		return cli.WriteOne(cmd, protection{now.Table, now.Mode, now.ResourceExpr})
	})
	mode := &cli.Choice{To: (*string)(&p.Mode), Of: []string{string(postgres.ProtectAudit), string(postgres.ProtectEnforce)}}
	cmd.Flags().StringVar(&p.ResourceExpr, "resource", "", "the name of a row's resource, as an SQL expression `EXPR`; needed the first time")
	cmd.Flags().Var(mode, "mode", "audit or enforce; if not given, as before, and audit the first time")
	return connected(d, cmd)
}

type protection struct {
	Table    string               `json:"table"`
	Mode     postgres.ProtectMode `json:"mode"`
	Resource string               `json:"resource"`
}

func newUnprotect() *cobra.Command {
	type unprotected struct {
		Table       string `json:"table"`
		Unprotected bool   `json:"unprotected"`
	}
	d := &databaseFlags{timeout: time.Minute}
	return connected(d, newCommand("unprotect", func(cmd *cobra.Command, args []string) error {
		done, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) (bool, error) {
			return postgres.Unprotect(ctx, db.Pool, d.schema, args[0])
		})
		if err != nil {
			return err
		}
		if !done {
			fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: %s is not protected; see \"fencectl protected\"\n", args[0])
		}
		return cli.WriteOne(cmd, unprotected{args[0], done})
	}))
}

func newProtected() *cobra.Command {
	d := &databaseFlags{timeout: time.Minute}
	writes := false
	cmd := newCommand("protected", func(cmd *cobra.Command, _ []string) error {
		if writes {
			return listUnguarded(cmd, d)
		}
		return listProtected(cmd, d)
	})
	cmd.Flags().BoolVar(&writes, "writes", false, "show the unguarded writes that were recorded in audit mode")
	return connected(d, cmd)
}

type protectedTable struct {
	protection
	Problem         string     `json:"problem,omitempty"`
	UnguardedWrites int64      `json:"unguarded_writes" column:"unguarded"`
	LastAt          *time.Time `json:"last_at,omitempty" column:"last"`
}

func listProtected(cmd *cobra.Command, d *databaseFlags) error {
	tables, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) ([]postgres.ProtectedTable, error) {
		return postgres.ListProtected(ctx, db.Pool, d.schema)
	})
	if err != nil {
		return err
	}
	var rows []protectedTable
	broken := 0
	for _, t := range tables {
		rows = append(rows, protectedTable{protection{t.Table, t.Mode, t.ResourceExpr}, t.Problem, t.UnguardedWrites, t.LastAt})
		if t.Problem != "" {
			broken++
		}
	}
	if len(rows) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no table is protected")
	}
	if err := cli.Write(cmd, rows); err != nil || broken == 0 {
		return err
	}
	return cli.Final(cli.ExitViolated, fmt.Errorf("%d of %d tables are not fully protected: \"fencectl doctor\" says what to run", broken, len(rows)))
}

func listUnguarded(cmd *cobra.Command, d *databaseFlags) error {
	rows, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) ([]postgres.UnguardedWrite, error) {
		return postgres.UnguardedWrites(ctx, db.Pool, d.schema)
	})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no unguarded write was recorded")
	}
	return cli.Write(cmd, rows)
}
