package main

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/storage/postgres"
)

// globals are the flags that commands inherit: all of them the output, and those of
// "migrate" the others.
type globals struct {
	databaseURL string
	schema      string
	output      format
	timeout     time.Duration
}

// registerOutput adds the flag of every command.
func (g *globals) registerOutput(flags *pflag.FlagSet) {
	g.output = formatTable
	flags.VarP(&g.output, "output", "o", "format of data on stdout: "+formatNames)
	nameVariables(flags)
}

// registerDatabase adds the flags of commands that work on a database.
func (g *globals) registerDatabase(flags *pflag.FlagSet) {
	flags.StringVar(&g.databaseURL, "database-url", "", "Postgres as a URL or keywords; if empty, libpq's variables (PGHOST, PGDATABASE, ...) say where it is")
	flags.StringVar(&g.schema, "schema", postgres.DefaultSchema, "the schema that Fencekit lives in")
	flags.DurationVar(&g.timeout, "timeout", 30*time.Second, "give up after this long")
	nameVariables(flags)
}

// nameVariables adds to each flag's help the variable that stands for it.
func nameVariables(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) { f.Usage += " (" + variable(f) + ")" })
}

// variable names the environment variable that stands for a flag.
func variable(f *pflag.Flag) string {
	return "FENCEKIT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// fill takes the flags that were not given from their variables, and refuses
// values that no command could use. An empty variable counts as unset.
func (g *globals) fill(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		value := os.Getenv(variable(f))
		if err != nil || f.Changed || value == "" {
			return
		}
		if bad := f.Value.Set(value); bad != nil {
			err = usageErrorf("%s: %w", variable(f), bad)
		}
	})
	if err != nil {
		return err
	}
	return g.validate()
}

func (g *globals) validate() error {
	if g.schema == "" { // a script's unset variable, not a wish for the default
		return usageErrorf("--schema is empty")
	}
	if _, err := postgres.Migrations(g.schema); err != nil {
		return usageErrorf("--schema (FENCEKIT_SCHEMA): %w", err)
	}
	if g.timeout <= 0 {
		return usageErrorf("--timeout (FENCEKIT_TIMEOUT) is %v, want more than 0, such as 30s", g.timeout)
	}
	return nil
}
