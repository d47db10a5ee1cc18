package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/fencekit/fencekit/bench/internal/result"
	"github.com/fencekit/fencekit/bench/internal/scenario"
)

// Markdown writes the table of what must be shown, and for each scenario that was run one of
// all contenders.
func Markdown(w io.Writer, run *result.Run, all []scenario.Scenario) {
	fmt.Fprintf(w, "%s\n\n", heading(run))
	regimes := regimesOf(run)
	if rows := mustRows(run, all, regimes); len(rows) > 0 {
		fmt.Fprint(w, "Medians of ratios within a round, [smallest..largest]. The bound is what a run has to reach, the aim what is worked towards. "+
			"✗ misses the bound, ✓ reaches it, ★ reaches the aim; a figure without a mark has no bound in that regime, and - was not measured.\n\n")
		fmt.Fprintf(w, "| what | bound |%s\n|---|---|%s\n", cells(regimes), strings.Repeat("---|", len(regimes)))
		for _, row := range rows {
			fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
		}
		fmt.Fprintln(w)
	}
	for _, s := range all {
		markdownScenario(w, run, s, regimes)
	}
}

// heading says what was run, where, and how busy the machine was.
func heading(run *result.Run) string {
	busy := spreadOfOthers(run)
	rough := ""
	if busy.Median > busyPercent {
		rough = fmt.Sprintf(" Above %d%% rates and ratios are rough: repeat the run on a machine that does nothing else.", busyPercent)
	}
	return fmt.Sprintf("%s, %s: %d rounds of %g s; %s; commit %s. Others used %s%% of the machine's CPU time during the cells.%s",
		run.Began.UTC().Format("2006-01-02 15:04 UTC"), run.Machine, run.Rounds, run.Seconds, run.Versions, run.Commit, spreadText(busy), rough)
}

// busyPercent of the machine's CPU time used by others make a run's figures rough.
const busyPercent = 20

func cells(regimes []result.Regime) string {
	var text strings.Builder
	for _, r := range regimes {
		fmt.Fprintf(&text, " %s |", r)
	}
	return text.String()
}

// mustRows are the rows of the scenarios that were run.
func mustRows(run *result.Run, all []scenario.Scenario, regimes []result.Regime) (rows [][]string) {
	for _, s := range all {
		if !ran(run, s) {
			continue
		}
		for _, m := range s.Musts {
			row := []string{m.Row, boundsText(m)}
			for _, r := range regimes {
				row = append(row, mustCell(compare(run, s, m, r), m))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func mustCell(f figure, m scenario.Must) string {
	if mark := marks[f.verdict(m.AtMost)]; mark != "" {
		return mark + " " + f.text()
	}
	return f.text()
}

// marks are shown before a figure.
var marks = map[verdict]string{missed: "✗", reached: "✓", aimReached: "★"}

// boundText is "at least 7.00, aim 12.0".
func boundText(b scenario.Bound, atMost bool) string {
	text := "at least " + number(b.Least)
	if atMost {
		text = "at most " + number(b.Least)
	}
	if b.Aim != 0 {
		text += ", aim " + number(b.Aim)
	}
	return text
}

// boundsText is the bound if it is the same in all regimes, and else each with its regimes.
func boundsText(m scenario.Must) string {
	words := map[string][]string{}
	var order []string
	for _, r := range scenario.Regimes {
		b, ok := m.Bounds[r]
		if !ok {
			continue
		}
		text := boundText(b, m.AtMost)
		if words[text] == nil {
			order = append(order, text)
		}
		words[text] = append(words[text], r.String())
	}
	if len(order) == 1 && len(words[order[0]]) == len(scenario.Regimes) {
		return order[0]
	}
	var parts []string
	for _, text := range order {
		parts = append(parts, text+" ("+strings.Join(words[text], ", ")+")")
	}
	return strings.Join(parts, "; ")
}

// markdownScenario is one table: the median rate of each contender, and its ratio to the
// baseline.
func markdownScenario(w io.Writer, run *result.Run, s scenario.Scenario, regimes []result.Regime) {
	if !ran(run, s) {
		return
	}
	fmt.Fprintf(w, "### %s (`%s`)\n\n%s%s\n\n| contender |%s\n|---|%s\n", s.Title, s.Name, s.About, against(s), cells(regimes), strings.Repeat("---|", len(regimes)))
	for _, c := range s.Contenders {
		fmt.Fprintf(w, "| %s |", c.Name)
		for _, r := range regimes {
			fmt.Fprintf(w, " %s |", rateCell(run, s, c, r))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// against says what × is against.
func against(s scenario.Scenario) string {
	switch len(s.Baseline) {
	case 0:
		return ""
	case 1:
		return " × is against " + s.Baseline[0] + "."
	default:
		return " × is against whichever has the highest median rate of: " + strings.Join(s.Baseline, "; ") + "."
	}
}

// rateCell is "1,234/s, × 0.42 [0.36..0.50]".
func rateCell(run *result.Run, s scenario.Scenario, c scenario.Contender, r result.Regime) string {
	rate := spreadOf(run, s, c.Name, r, result.Rate)
	if rate.Count == 0 {
		return "-"
	}
	text := number(rate.Median) + "/s"
	if tooFew(run, s, c.Name, r) {
		text += fmt.Sprintf(" (%.0f operations a round)", spreadOf(run, s, c.Name, r, result.Operations).Median)
	}
	baseline := best(run, s, s.Baseline, r)
	if baseline != c.Name && baseline != "" {
		f := compare(run, s, scenario.Must{Contender: c.Name, Metric: result.Rate, Compared: scenario.AsRatio}, r)
		text += ", × " + f.text()
	}
	return text
}
