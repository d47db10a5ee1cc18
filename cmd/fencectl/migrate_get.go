package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

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
			scripts, err := migrationScripts(d.schema)
			if err != nil {
				return err
			}
			if one {
				if scripts, err = only(scripts, version); err != nil {
					return err
				}
			}
			return writeScripts(cmd.OutOrStdout(), out.Format, scripts)
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "the one migration to print")
	cmd.Flags().BoolVar(&all, "all", false, "print all migrations (the default)")
	return cmd
}

// script is a migration as a row of "migrate get".
type script struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
	SQL     string `json:"sql"`
}

func (script) Columns() []string { return []string{"version", "name", "sql"} }
func (s script) Cells() []string { return []string{strconv.Itoa(s.Version), s.Name, s.SQL} }

func migrationScripts(schema string) ([]script, error) {
	migrations, err := postgres.Migrations(schema)
	if err != nil {
		return nil, err
	}
	var scripts []script
	for _, m := range migrations {
		scripts = append(scripts, script{m.Version, m.Name, standalone(schema, m)})
	}
	return scripts, nil
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

func only(scripts []script, version int) ([]script, error) {
	for _, s := range scripts {
		if s.Version == version {
			return []script{s}, nil
		}
	}
	return nil, cli.UsageErrorf("there is no migration %d: versions are %d to %d", version, scripts[0].Version, scripts[len(scripts)-1].Version)
}

func writeScripts(w io.Writer, f cli.Format, scripts []script) error {
	if f != cli.FormatTable {
		return cli.WriteList(w, f, scripts)
	}
	texts := make([]string, 0, len(scripts))
	for _, s := range scripts {
		texts = append(texts, s.SQL)
	}
	if _, err := io.WriteString(w, strings.Join(texts, "\n")); err != nil {
		return fmt.Errorf("can't write the output: %w", err)
	}
	return nil
}
