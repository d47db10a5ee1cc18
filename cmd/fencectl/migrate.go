package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/storage/postgres"
)

func newMigrate(g *globals) *cobra.Command {
	cmd := newGroup("migrate", "Bring Fencekit's schema up to date, or see whether it is")
	g.registerDatabase(cmd.PersistentFlags())
	cmd.AddCommand(newMigrateUp(g), newMigrateStatus(g), newMigrateGet(g))
	return cmd
}

// upCommand is what brings a schema up to date, as a user would type it.
func upCommand(schema string) string {
	if schema == postgres.DefaultSchema {
		return "fencectl migrate up"
	}
	return "fencectl migrate up --schema " + schema
}

// plural is "1 migration", "2 migrations".
func plural(n int) string {
	if n == 1 {
		return "1 migration"
	}
	return strconv.Itoa(n) + " migrations"
}
