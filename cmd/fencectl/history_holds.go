package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/internal/cli"
)

func newHistoryHolds(d *databaseFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "holds [flags]",
		Short: "Show the resources whose history is on hold",
		Long: `Show the resources whose history is on hold, since when, the role that gave the
reason, and the reason. The reader role is enough.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var holds []hold
			err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
				db, err := audit.Open(pool, d.schema)
				if err != nil {
					return err
				}
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
