package command

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/chaos/internal/result"
	"github.com/fencekit/fencekit/internal/cli"
)

func newCompare(out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "compare DIR DIR [flags]",
		Short: "Put two suites side by side",
		Long: `Put two suites side by side, scenario by scenario and group by group: runs, how
many were violated, and the worst quantiles. It judges nothing: the exit code is
0 whatever the figures are.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return cli.UsageErrorf("chaos compare takes the directories of two suites")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return compare(cmd, out, args) },
	}
}

// comparisonRow is a row of "chaos compare": "before -> after".
type comparisonRow struct{ result.ComparisonRow }

func (comparisonRow) Columns() []string {
	return []string{"scenario", "group", "faults", "runs", "violated", "inconclusive", "operations", "rejections", "oversold", "lost", "p50", "p99", "hand_over_p99"}
}

func (r comparisonRow) Cells() []string {
	cells := []string{r.Scenario, r.Group, onOff(r.Faults)}
	for _, figure := range []func(result.Totals) string{
		func(t result.Totals) string { return strconv.Itoa(t.Runs) },
		func(t result.Totals) string { return strconv.Itoa(t.Violated) },
		func(t result.Totals) string { return strconv.Itoa(t.Inconclusive) },
		func(t result.Totals) string { return strconv.Itoa(t.Counts.Operations) },
		func(t result.Totals) string { return strconv.Itoa(t.Counts.Rejections) },
		func(t result.Totals) string { return strconv.Itoa(t.Counts.Oversold) },
		func(t result.Totals) string { return strconv.Itoa(t.Counts.Lost) },
		func(t result.Totals) string { return t.Latency.P50.Round(100_000).String() },
		func(t result.Totals) string { return p99(t.Latency) },
		func(t result.Totals) string { return p99(t.HandOver) },
	} {
		cells = append(cells, side(r.Sides[0], figure)+" -> "+side(r.Sides[1], figure))
	}
	return cells
}

// side is a figure of one suite, "-" if it has no runs or nothing to measure.
func side(t result.Totals, figure func(result.Totals) string) string {
	if t.Runs == 0 {
		return "-"
	}
	if text := figure(t); text != "" {
		return text
	}
	return "-"
}

func compare(cmd *cobra.Command, out *cli.Output, dirs []string) error {
	var suites [2]*result.Suite
	for i, dir := range dirs {
		var err error
		if suites[i], err = loadSuite(dir); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", dir, suites[i].Verdict, suites[i].Reason)
	}
	var rows []comparisonRow
	for _, r := range result.Compare(suites[0], suites[1]).Rows {
		rows = append(rows, comparisonRow{r})
	}
	return cli.WriteList(cmd.OutOrStdout(), out.Format, rows)
}
