package main

import (
	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
)

// newRoot returns the whole command line, with all flags at their defaults.
func newRoot() *cobra.Command {
	root, out := cli.NewRoot("fencectl", "Look after Fencekit in a database and in etcd", `Fencectl looks after Fencekit in a database and in etcd. "fencectl chaos" runs
Fencekit under real faults, by the command fencectl-chaos.`)
	root.AddCommand(newMigrate(out), newHistory(out), newAudit(out), newTokens(out), newLocks(out), newEpoch(out), newDoctor(out), newExec(),
		newProtect(out), newUnprotect(out), newProtected(out), newChaos(), newCompletion(), newVersion(out))
	completeFlags(root)
	return root
}
