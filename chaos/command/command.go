// Package command is the command line of fencectl-chaos, which "fencectl chaos" finds
// and runs.
//
//	fencectl chaos list        list scenarios, groups and kinds of faults
//	fencectl chaos run         run scenarios, and judge them
//
// The exit code is a contract: 0 ok, 1 a property is violated, 2 inconclusive, 3
// environment not ready, 64 usage.
package command

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/chaos"
	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/rediscontrol"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/cli"
)

// Main is the whole main of fencectl-chaos. It never returns. In a process that was started
// as a worker or a server of a run it runs that.
func Main() {
	worker.Register(rediscontrol.All()...)
	chaos.Reexec()
	cli.Main(newRoot())
}

func newRoot() *cobra.Command {
	root, out := cli.NewRoot("fencectl chaos", "Run Fencekit under real faults, with controls that must fail",
		"Fencectl chaos runs Fencekit under real faults, with controls that must fail.")
	root.AddCommand(newList(out), newRun(out))
	return root
}

// commandLine is the command with the flags that were given, and always its seed.
func commandLine(cmd *cobra.Command) string {
	words := []string{cmd.CommandPath()}
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		given := flag.Changed || flag.Name == "seed"
		if !given || flag.Name == "out" || flag.Name == "resume" {
			return
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			words = append(words, "--"+flag.Name, quoted(value))
		}
	})
	return strings.Join(words, " ")
}

func quoted(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func newList(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "list [scenarios|groups|faults] [flags]",
		Short: "List scenarios, groups or kinds of faults",
		Long: `List what "chaos run" can run: scenarios (the default), the groups that run
them (Fencekit and its controls), or the kinds of faults that they inject.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 1 && !slices.Contains([]string{"scenarios", "groups", "faults"}, args[0]) {
				return cli.UsageErrorf("chaos list takes one of scenarios, groups or faults")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w := cmd.OutOrStdout()
			switch strings.Join(args, "") {
			case "groups":
				return cli.WriteList(w, out.Format, worker.Groups())
			case "faults":
				return cli.WriteList(w, out.Format, run.Kinds)
			}
			var rows []scenarioRow
			for _, s := range run.Describe() {
				rows = append(rows, scenarioRow{s})
			}
			return cli.WriteList(w, out.Format, rows)
		},
	}
}

type scenarioRow struct{ check.Scenario }

// Columns implements cli.WriteList's row.
func (r scenarioRow) Columns() any {
	return struct{ Name, Family, Controls, Summary string }{r.Name, r.Family, strings.Join(r.Controls, " "), r.Summary}
}
