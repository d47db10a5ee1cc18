package command

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/chaos/internal/fault"
	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/chaos/internal/run"
	"github.com/fencekit/fencekit/chaos/internal/scenario"
	"github.com/fencekit/fencekit/internal/cli"
)

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
