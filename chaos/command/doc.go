// Package command is the command line of fencectl-chaos, which "fencectl chaos" finds
// and runs.
//
//	fencectl chaos list        list scenarios, groups and kinds of faults
//	fencectl chaos run         run scenarios, and judge them
//	fencectl chaos verify      judge saved runs again
//	fencectl chaos compare     put two suites side by side
//
// The exit code is a contract: 0 ok, 1 a property is violated, 2 inconclusive, 3
// environment not ready, 64 usage.
package command

import (
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/cli"
)

// Main is the whole main of fencectl-chaos. It never returns. In a process that was started
// as a worker or a server of a run it runs that.
func Main() {
	worker.Reexec()
	cli.Main(newRoot())
}
