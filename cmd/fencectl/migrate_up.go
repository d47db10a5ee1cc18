package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/storage/postgres"
)

func newMigrateUp(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "up [flags]",
		Short: "Apply the migrations that are missing",
		Long: `Apply the migrations that are missing, each in a transaction of its own, and
print those that were applied. Concurrent runs wait for each other. The schema
is created if it isn't there; the role needs the right to, and becomes its owner.

If it fails or is interrupted on the way, what was applied stays, and running it
again goes on from there.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return migrateUp(cmd, g) },
	}
}

// appliedMigration is a row of what "migrate up" did.
type appliedMigration struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func (appliedMigration) columns() []string { return []string{"version", "name"} }
func (m appliedMigration) cells() []string { return []string{strconv.Itoa(m.Version), m.Name} }

func migrateUp(cmd *cobra.Command, g *globals) error {
	var applied []appliedMigration
	failure := g.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		migrations, err := postgres.Migrate(ctx, pool, g.schema)
		for _, m := range migrations {
			applied = append(applied, appliedMigration{m.Version, m.Name})
		}
		return err
	})
	if failure == nil || len(applied) > 0 {
		failure = errors.Join(failure, writeList(cmd.OutOrStdout(), g.output, applied))
	}
	if failure != nil {
		return failure
	}
	if len(applied) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: schema %s has every migration that this fencectl knows\n", g.schema)
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "applied %s to schema %s\n", plural(len(applied)), g.schema)
	return nil
}
