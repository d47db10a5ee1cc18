package main

import (
	"time"

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

// upCommand is what brings a schema up to date, as a user would type it.
func upCommand(schema string) string {
	if schema == postgres.DefaultSchema {
		return "fencectl migrate up"
	}
	return "fencectl migrate up --schema " + schema
}
