package fencectl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newMigrate() *cobra.Command {
	d := &databaseFlags{timeout: 30 * time.Second}
	status := newCommand("migrate status", func(cmd *cobra.Command, _ []string) error { return migrateStatus(cmd, d) })
	return connected(d, newCommand("migrate", nil), newMigrateUp(d), status)
}

type migration struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func newMigrateUp(d *databaseFlags) *cobra.Command {
	var roles postgres.Roles
	cmd := newCommand("migrate up", func(cmd *cobra.Command, _ []string) error {
		if _, err := postgres.RolesSQL(d.schema, roles); roles != (postgres.Roles{}) && err != nil {
			return cli.UsageErrorf("--app-role, --reader-role: %w", err)
		}
		return migrateUp(cmd, d, roles)
	})
	cmd.Flags().StringVar(&roles.App, "app-role", "", "let this role run guarded transactions")
	cmd.Flags().StringVar(&roles.Reader, "reader-role", "", "let this role read fences, history and rejections")
	return cmd
}

func migrateUp(cmd *cobra.Command, d *databaseFlags, roles postgres.Roles) error {
	applied, failure := ask(cmd.Context(), d, func(ctx context.Context, db *session) (applied []migration, err error) {
		migrations, err := postgres.Migrate(ctx, db.Pool, d.schema)
		for _, m := range migrations {
			applied = append(applied, migration{m.Version, m.Name})
		}
		if err == nil && roles != (postgres.Roles{}) {
			err = postgres.GrantRoles(ctx, db.Pool, d.schema, roles)
		}
		return applied, err
	})
	if failure == nil || len(applied) > 0 {
		failure = errors.Join(failure, cli.Write(cmd, applied))
	}
	if failure != nil {
		return failure
	}
	stderr := cmd.ErrOrStderr()
	if roles.App != "" {
		fmt.Fprintf(stderr, "role %s may run guarded transactions in schema %s\n", roles.App, d.schema)
	}
	if roles.Reader != "" {
		fmt.Fprintf(stderr, "role %s may read schema %s\n", roles.Reader, d.schema)
	}
	if len(applied) == 0 {
		fmt.Fprintf(stderr, "nothing to do: schema %s has every migration that this fencectl knows\n", d.schema)
	} else {
		fmt.Fprintf(stderr, "applied %s to schema %s\n", cli.Counted(len(applied), "migration"), d.schema)
	}
	return nil
}

func migrateStatus(cmd *cobra.Command, d *databaseFlags) error {
	type state struct {
		migration
		AppliedAt *time.Time `json:"applied_at"`
	}
	migrations, err := ask(cmd.Context(), d, func(ctx context.Context, db *session) ([]postgres.Migration, error) {
		return postgres.MigrationStatus(ctx, db.Pool, d.schema)
	})
	if err != nil {
		return err
	}
	var states []state
	missing := 0
	for _, m := range migrations {
		if !m.Applied() {
			missing++
		}
		states = append(states, state{migration{m.Version, m.Name}, timeOrNil(m.AppliedAt)})
	}
	if err := cli.Write(cmd, states); err != nil || missing == 0 {
		return err
	}
	up := "fencectl migrate up"
	if d.schema != postgres.DefaultSchema {
		up += " --schema " + d.schema
	}
	return cli.NotReady(fmt.Errorf("%w: schema %s lacks %s; run \"%s\"", &postgres.NotReadyError{Reason: postgres.NotMigrated}, d.schema, cli.Counted(missing, "migration"), up))
}
