// Package fencectl is the command that looks after Fencekit in a database and in etcd: it manages the schema, verifies and prunes the
// history, protects tables, shows and takes away locks, raises the epoch after a restore, examines an installation,
// and runs commands under a lock. "fencectl --help" lists the commands.
//
// The exit code is a contract: 0 ok, 1 a property is violated, 2 inconclusive, 3 environment not ready, 64 usage.
// Passwords are never printed: errors don't repeat arguments that may contain one.
//
// A command, or a group of them, has a file of its own, and a section in help.txt. database.go and etcd.go hold what
// the commands on a database and those on etcd share, and package internal/cli what all share with fencectl-chaos.
package fencectl

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

// Main runs the command line of this process. It reaches locks in Postgres, in etcd, and in the services given.
func Main(services ...LockService) {
	cli.Main(newRoot(services...))
}

func newRoot(services ...LockService) *cobra.Command {
	reached := lockFlags{known: services}
	root := cli.NewRoot("fencectl", "Look after Fencekit in a database and in etcd", "Fencectl looks after Fencekit in a database and in etcd.")
	root.AddCommand(newMigrate(), newHistory(), newAudit(), newTokens(), newLocks(reached), newEpoch(reached), newDoctor(reached), newExec(reached),
		newProtect(), newUnprotect(), newProtected(), newCommand("version", version))
	return root
}

func version(cmd *cobra.Command, _ []string) error {
	migrations, err := postgres.Migrations(postgres.DefaultSchema)
	if err != nil {
		return err
	}
	return cli.WriteOne(cmd, versions{cli.ModuleVersion(), runtime.Version(), migrations[len(migrations)-1].Version})
}

type versions struct {
	Fencectl string `json:"fencectl"`
	Go       string `json:"go"`
	Schema   int    `json:"schema"`
}
