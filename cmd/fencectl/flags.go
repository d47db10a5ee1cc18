package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

// databaseFlags are the flags of the commands that use a database.
type databaseFlags struct {
	url     string
	schema  string
	timeout time.Duration
}

// register adds the flags. timeout is the default of --timeout.
func (d *databaseFlags) register(flags *pflag.FlagSet, timeout time.Duration) {
	own := pflag.NewFlagSet("database", pflag.ContinueOnError)
	own.StringVar(&d.url, "database-url", "", "Postgres as a URL or keywords; if empty, libpq's variables (PGHOST, PGDATABASE, ...) say where it is")
	d.registerRest(own, timeout)
	flags.AddFlagSet(own)
}

// registerRest adds the flags but --database-url, and names the variables of all.
func (d *databaseFlags) registerRest(own *pflag.FlagSet, timeout time.Duration) {
	own.StringVar(&d.schema, "schema", postgres.DefaultSchema, "the schema that Fencekit lives in")
	own.DurationVar(&d.timeout, "timeout", timeout, "give up after this long")
	cli.NameVariables(own)
}

// registerOn adds the flags to a command that is in no group, and fills them before it runs.
func (d *databaseFlags) registerOn(cmd *cobra.Command) {
	own := pflag.NewFlagSet("database", pflag.ContinueOnError)
	d.register(own, time.Minute)
	cmd.Flags().AddFlagSet(own)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if err := cli.FillFromVariables(own); err != nil {
			return err
		}
		return d.validate()
	}
}

// given reports whether the flags or libpq's variables say where a database is, for commands
// that can do without.
func (d *databaseFlags) given() bool {
	for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return d.url != ""
}

// prepare takes flags from their variables and validates them, before a command runs.
func (d *databaseFlags) prepare(cmd *cobra.Command, _ []string) error {
	if err := cli.FillFromVariables(cmd.InheritedFlags()); err != nil {
		return err
	}
	return d.validate()
}

// validate rejects values that no command could use.
func (d *databaseFlags) validate() error {
	if d.schema == "" { // a script's unset variable, not a wish for the default
		return cli.UsageErrorf("--schema is empty: give a name, or leave the flag out")
	}
	if _, err := postgres.Migrations(d.schema); err != nil {
		return cli.UsageErrorf("--schema (FENCEKIT_SCHEMA): %w", err)
	}
	if d.timeout <= 0 {
		return cli.UsageErrorf("--timeout (FENCEKIT_TIMEOUT) is %v, want more than 0, such as 30s", d.timeout)
	}
	return nil
}
