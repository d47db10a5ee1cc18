package command

import (
	"strconv"

	"github.com/fencekit/fencekit/chaos/internal/result"
)

// totalRow is the figures of a scenario's runs by a group: a row of "chaos run".
type totalRow struct {
	Scenario string `json:"scenario"`
	Group    string `json:"group"`
	Faults   bool   `json:"faults"`
	result.Totals
}

func (totalRow) Columns() []string {
	return []string{"scenario", "group", "faults", "runs", "violated", "inconclusive", "operations", "injected", "rejections", "unknown", "oversold", "lost", "p99", "hand_over_p99"}
}

func (r totalRow) Cells() []string {
	c := r.Counts
	cells := []string{r.Scenario, r.Group, onOff(r.Faults)}
	for _, n := range []int{r.Runs, r.Violated, r.Inconclusive, c.Operations, c.Faults, c.Rejections, c.Unknown, c.Oversold, c.Lost} {
		cells = append(cells, strconv.Itoa(n))
	}
	return append(cells, p99(r.Latency), p99(r.HandOver))
}

// totalRows has Fencekit's rows first within each scenario.
func totalRows(suite *result.Suite) (rows []totalRow) {
	for _, r := range result.Compare(suite, &result.Suite{}).Rows {
		rows = append(rows, totalRow{r.Scenario, r.Group, r.Faults, r.Sides[0]})
	}
	return rows
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// p99 is empty if there was nothing to measure.
func p99(q result.Quantiles) string {
	if q.Count == 0 {
		return ""
	}
	return q.P99.Round(100_000).String()
}
