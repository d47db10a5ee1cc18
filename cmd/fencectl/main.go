// Command fencectl looks after Fencekit in a database and in etcd: it manages the schema, verifies and prunes the
// history, protects tables, shows and takes away locks, raises the epoch after a restore, examines an installation,
// and runs commands under a lock. "fencectl --help" lists the commands.
//
// Data goes to stdout, everything else to stderr. The exit code is a contract: 0 ok, 1 a
// property is violated, 2 inconclusive, 3 environment not ready, 64 usage. Passwords are
// never printed: errors don't repeat arguments that may contain one.
//
// A command, or a group of them, has a file of its own. database.go and etcd.go hold what the commands on a database
// and those on etcd share, and package internal/cli what all share with fencectl-chaos.
package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage/postgres"
)

func main() {
	runHelper()
	cli.Main(newRoot())
}

func newRoot() *cobra.Command {
	root, out := cli.NewRoot("fencectl", "Look after Fencekit in a database and in etcd", `Fencectl looks after Fencekit in a database and in etcd. "fencectl chaos" runs
Fencekit under real faults, by the command fencectl-chaos.`)
	root.AddCommand(newMigrate(out), newHistory(out), newAudit(out), newTokens(out), newLocks(out), newEpoch(out), newDoctor(out), newExec(),
		newProtect(out), newUnprotect(out), newProtected(out), newChaos(), newCompletion(), newVersion(out))
	completeFlags(root)
	return root
}

func newVersion(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "version [flags]",
		Short: "Print the versions of fencectl, of Go and of the schema it needs",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			migrations, err := postgres.Migrations(postgres.DefaultSchema)
			if err != nil {
				return err
			}
			build, _ := debug.ReadBuildInfo()
			v := versions{cli.ModuleVersion(build), runtime.Version(), migrations[len(migrations)-1].Version}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, v)
		},
	}
}

type versions struct {
	Fencectl string `json:"fencectl"` // of the module
	Go       string `json:"go"`       // that built it
	Schema   int    `json:"schema"`   // the newest migration
}
