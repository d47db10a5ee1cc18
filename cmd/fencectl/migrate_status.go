package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newMigrateStatus(d *databaseFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "status [flags]",
		Short: "Show every migration and when it was applied",
		Long: `Show every migration that this fencectl knows and when it was applied. It
changes nothing.

The exit code is 0 if all are applied and 3 (environment not ready) if one is
missing, so that a deployment can wait for it. The rows are printed in both
cases; what to run is said on stderr. The app role or the reader role is enough.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return migrateStatus(cmd, d, out) },
	}
}

// migrationState is a row of "migrate status".
type migrationState struct {
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // nil: not yet
}

func (migrationState) Columns() []string { return []string{"version", "name", "applied_at"} }

func (m migrationState) Cells() []string {
	at := ""
	if m.AppliedAt != nil {
		at = m.AppliedAt.Format(time.RFC3339Nano)
	}
	return []string{strconv.Itoa(m.Version), m.Name, at}
}

func stateOf(m postgres.Migration) migrationState {
	state := migrationState{Version: m.Version, Name: m.Name}
	if m.Applied() {
		at := m.AppliedAt.UTC()
		state.AppliedAt = &at
	}
	return state
}

func migrateStatus(cmd *cobra.Command, d *databaseFlags, out *cli.Output) error {
	var migrations []postgres.Migration
	err := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) (err error) {
		migrations, err = postgres.MigrationStatus(ctx, pool, d.schema)
		return err
	})
	if err != nil {
		return err
	}
	var states []migrationState
	missing := 0
	for _, m := range migrations {
		if !m.Applied() {
			missing++
		}
		states = append(states, stateOf(m))
	}
	if err := cli.WriteList(cmd.OutOrStdout(), out.Format, states); err != nil {
		return err
	}
	if missing > 0 {
		return cli.NotReady(fmt.Errorf("%w: schema %s lacks %s; run \"%s\"", &postgres.NotReadyError{Reason: postgres.NotMigrated}, d.schema, cli.Counted(missing, "migration"), upCommand(d.schema)))
	}
	return nil
}
