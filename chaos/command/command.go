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
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/chaos/internal/control"
	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/rediscontrol"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/chaos/internal/worker"
	"github.com/fencekit/fencekit/internal/cli"
)

// Main is the whole main of fencectl-chaos. It never returns. In a process that was started
// as a worker or a server of a run it runs that.
func Main() {
	control.Register(rediscontrol.All()...)
	worker.Reexec()
	cli.Main(newRoot())
}

// newRoot returns the whole command line, with all flags at their defaults.
func newRoot() *cobra.Command {
	root, out := cli.NewRoot("fencectl chaos", "Run Fencekit under real faults, with controls that must fail",
		"Fencectl chaos runs Fencekit under real faults, with controls that must fail.")
	root.AddCommand(newList(out), newRun(out))
	return root
}

// byVerdict is nil for a pass, and otherwise the suite's reason with its exit code.
func byVerdict(suite *result.Suite) error {
	switch suite.Verdict {
	case result.Pass:
		return nil
	case result.Violated:
		return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New(suite.Reason)}
	}
	return &cli.ExitError{Code: cli.ExitInconclusive, Err: errors.New(suite.Reason)}
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

// quoted is a word quoted for a shell.
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
		Args: listArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			w := cmd.OutOrStdout()
			switch strings.Join(args, "") {
			case "groups":
				return cli.WriteList(w, out.Format, groupRows(run.Groups()))
			case "faults":
				return cli.WriteList(w, out.Format, faultRows(fault.Kinds()))
			}
			return cli.WriteList(w, out.Format, scenarioRows(scenario.All()))
		},
	}
}

func listArgs(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.UsageErrorf("chaos list takes one of scenarios, groups or faults")
	}
	if len(args) == 1 && args[0] != "scenarios" && args[0] != "groups" && args[0] != "faults" {
		return cli.UsageErrorf("chaos list: want scenarios, groups or faults")
	}
	return nil
}

// scenarioRow is a row of "chaos list".
type scenarioRow struct {
	Name     string   `json:"name"`
	Family   string   `json:"family"`
	Controls []string `json:"controls"`
	Summary  string   `json:"summary"`
}

func (scenarioRow) Columns() []string { return []string{"name", "family", "controls", "summary"} }
func (r scenarioRow) Cells() []string {
	return []string{r.Name, r.Family, strings.Join(r.Controls, " "), r.Summary}
}

func scenarioRows(scenarios []scenario.Scenario) (rows []scenarioRow) {
	for _, s := range scenarios {
		rows = append(rows, scenarioRow{s.Name, s.Family, append([]string{}, s.Controls...), s.Summary})
	}
	return rows
}

// groupRow is a row of "chaos list groups".
type groupRow struct{ result.Group }

func (groupRow) Columns() []string { return []string{"name", "title", "recipe", "flaw"} }
func (r groupRow) Cells() []string { return []string{r.Name, r.Title, r.Recipe, r.Flaw} }

func groupRows(groups []result.Group) (rows []groupRow) {
	for _, g := range groups {
		rows = append(rows, groupRow{g})
	}
	return rows
}

// faultRow is a row of "chaos list faults".
type faultRow struct {
	Kind    string `json:"kind"`
	Summary string `json:"summary"`
}

func (faultRow) Columns() []string { return []string{"kind", "summary"} }
func (r faultRow) Cells() []string { return []string{r.Kind, r.Summary} }

func faultRows(kinds []fault.Kind) (rows []faultRow) {
	for _, k := range kinds {
		rows = append(rows, faultRow{k.Name, k.Summary})
	}
	return rows
}
