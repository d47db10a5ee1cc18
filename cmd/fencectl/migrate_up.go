package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newMigrateUp(d *databaseFlags, out *cli.Output) *cobra.Command {
	var roles postgres.Roles
	cmd := &cobra.Command{
		Use:   "up [flags]",
		Short: "Apply the migrations that are missing",
		Long: `Apply the migrations that are missing, each in a transaction of its own, and
print those that were applied. Concurrent runs wait for each other. The schema
is created if it isn't there; the role needs the right to, and becomes its
owner.

With --app-role or --reader-role it then gives those roles exactly the rights
that they need in the schema, and makes them, without the right to log in, if
they don't exist: a service logs in as a member of the app role, and can't write
fences or history but by what the protocol does; a member of the reader role can
read them. Give the flags again with each migration.

If it fails or is interrupted on the way, what was applied stays, and running it
again goes on from there.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := postgres.RolesSQL(d.schema, roles); roles != (postgres.Roles{}) && err != nil {
				return cli.UsageErrorf("--app-role, --reader-role: %w", err)
			}
			return migrateUp(cmd, d, out, roles)
		},
	}
	cmd.Flags().StringVar(&roles.App, "app-role", "", "let this role run guarded transactions")
	cmd.Flags().StringVar(&roles.Reader, "reader-role", "", "let this role read fences, history and rejections")
	return cmd
}

// appliedMigration is a row of what "migrate up" did.
type appliedMigration struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

func (appliedMigration) Columns() []string { return []string{"version", "name"} }
func (m appliedMigration) Cells() []string { return []string{strconv.Itoa(m.Version), m.Name} }

func migrateUp(cmd *cobra.Command, d *databaseFlags, out *cli.Output, roles postgres.Roles) error {
	var applied []appliedMigration
	failure := d.withDatabase(cmd.Context(), func(ctx context.Context, pool *pgxpool.Pool) error {
		migrations, err := postgres.Migrate(ctx, pool, d.schema)
		for _, m := range migrations {
			applied = append(applied, appliedMigration{m.Version, m.Name})
		}
		if err != nil || roles == (postgres.Roles{}) {
			return err
		}
		return postgres.GrantRoles(ctx, pool, d.schema, roles)
	})
	if failure == nil || len(applied) > 0 {
		failure = errors.Join(failure, cli.WriteList(cmd.OutOrStdout(), out.Format, applied))
	}
	if failure != nil {
		return failure
	}
	tellRoles(cmd.ErrOrStderr(), d.schema, roles)
	if len(applied) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: schema %s has every migration that this fencectl knows\n", d.schema)
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "applied %s to schema %s\n", cli.Counted(len(applied), "migration"), d.schema)
	return nil
}

func tellRoles(w io.Writer, schema string, roles postgres.Roles) {
	if roles.App != "" {
		fmt.Fprintf(w, "role %s may run guarded transactions in schema %s\n", roles.App, schema)
	}
	if roles.Reader != "" {
		fmt.Fprintf(w, "role %s may read schema %s\n", roles.Reader, schema)
	}
}
