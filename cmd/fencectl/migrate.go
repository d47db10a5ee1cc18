package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newMigrate(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	cmd := cli.NewGroup("migrate", "Bring Fencekit's schema up to date, or see whether it is")
	d.register(cmd.PersistentFlags(), 30*time.Second)
	cmd.PersistentPreRunE = d.prepare
	cmd.AddCommand(newMigrateUp(d, out), newMigrateStatus(d, out), newMigrateGet(d, out))
	return cmd
}

func upCommand(schema string) string {
	if schema == postgres.DefaultSchema {
		return "fencectl migrate up"
	}
	return "fencectl migrate up --schema " + schema
}

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

type appliedMigration struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

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
	if roles.App != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "role %s may run guarded transactions in schema %s\n", roles.App, d.schema)
	}
	if roles.Reader != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "role %s may read schema %s\n", roles.Reader, d.schema)
	}
	if len(applied) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "nothing to do: schema %s has every migration that this fencectl knows\n", d.schema)
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "applied %s to schema %s\n", cli.Counted(len(applied), "migration"), d.schema)
	return nil
}

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

type migrationState struct {
	Version   int        `json:"version"`
	Name      string     `json:"name"`
	AppliedAt *time.Time `json:"applied_at"` // nil: not yet
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
		states = append(states, migrationState{m.Version, m.Name, timeOrNil(m.AppliedAt)})
	}
	if err := cli.WriteList(cmd.OutOrStdout(), out.Format, states); err != nil {
		return err
	}
	if missing > 0 {
		return cli.NotReady(fmt.Errorf("%w: schema %s lacks %s; run \"%s\"", &postgres.NotReadyError{Reason: postgres.NotMigrated}, d.schema, cli.Counted(missing, "migration"), upCommand(d.schema)))
	}
	return nil
}

func newMigrateGet(d *databaseFlags, out *cli.Output) *cobra.Command {
	var version int
	var all bool
	cmd := &cobra.Command{
		Use:   "get [--version N | --all] [flags]",
		Short: "Print the migrations' SQL, to be applied by another tool",
		Long: `Print the SQL of one migration or, without flags, of all of them, with the
schema filled in. It needs no database.

Each script creates the schema if need be, does its work and records itself, so
that a service and "migrate status" see it. Run it in one transaction, as most
migration tools do:

  fencectl migrate get | psql -1 -v ON_ERROR_STOP=1

goose and sql-migrate split a file at its semicolons. Put each script between
their marks: for goose

  -- +goose Up
  -- +goose StatementBegin
  ...
  -- +goose StatementEnd

and for sql-migrate the same with "+migrate" in the place of "+goose".

A script that was applied before fails and, in a transaction, changes nothing.
With the output format table the SQL is printed as it is; the others have the
columns version, name and sql.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			one := cmd.Flags().Changed("version")
			if one && all {
				return cli.UsageErrorf("--version and --all exclude each other")
			}
			migrations, err := postgres.Migrations(d.schema)
			if err != nil {
				return err
			}
			last := migrations[len(migrations)-1].Version
			if one {
				migrations = slices.DeleteFunc(migrations, func(m postgres.Migration) bool { return m.Version != version })
			}
			if len(migrations) == 0 {
				return cli.UsageErrorf("there is no migration %d: versions are 1 to %d", version, last)
			}
			return writeScripts(cmd.OutOrStdout(), out.Format, d.schema, migrations)
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "the one migration to print")
	cmd.Flags().BoolVar(&all, "all", false, "print all migrations (the default)")
	return cmd
}

type script struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	SQL     string `json:"sql"`
}

// standalone is a migration with what postgres.Migrate does around it. The
// search_path is put back, since a tool may write its own record, in a table
// that it names without a schema, in the same transaction.
func standalone(schema string, m postgres.Migration) string {
	return fmt.Sprintf(`-- Fencekit migration %d (%s). Run it in one transaction.
create schema if not exists %s;
select pg_catalog.set_config('fencekit.search_path', pg_catalog.current_setting('search_path'), true);
set local search_path = pg_catalog, pg_temp;

%s
select pg_catalog.set_config('search_path', pg_catalog.current_setting('fencekit.search_path'), true);
`, m.Version, m.Name, pgx.Identifier{schema}.Sanitize(), m.SQL)
}

func writeScripts(w io.Writer, f cli.Format, schema string, migrations []postgres.Migration) error {
	var scripts []script
	var texts []string
	for _, m := range migrations {
		sql := standalone(schema, m)
		scripts, texts = append(scripts, script{m.Version, m.Name, sql}), append(texts, sql)
	}
	if f != cli.FormatTable {
		return cli.WriteList(w, f, scripts)
	}
	if _, err := io.WriteString(w, strings.Join(texts, "\n")); err != nil {
		return fmt.Errorf("can't write the output: %w", err)
	}
	return nil
}
