package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAudit(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	cmd := cli.NewGroup("audit", "Verify, explain and anchor the history")
	d.register(cmd.PersistentFlags(), time.Hour)
	cmd.PersistentPreRunE = d.prepare
	cmd.AddCommand(newAuditVerify(d, out), newAuditExport(d, out), newAuditWhy(d, out), newAuditReport(d, out), newAuditAnchor(d, out), newAuditKeygen(out), newAuditProve(out))
	return cmd
}

// withHistory is withDatabase with the history in the schema.
func (d *databaseFlags) withHistory(ctx context.Context, do func(context.Context, *pgxpool.Pool, *audit.Database) error) error {
	return d.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		history, err := audit.Open(pool, d.schema)
		if err != nil {
			return err
		}
		return do(ctx, pool, history)
	})
}

// matching says which pattern no resource matches, if there is one.
func matching(pattern string) string {
	if pattern == "" {
		return ""
	}
	return " matches " + strconv.Quote(pattern)
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
