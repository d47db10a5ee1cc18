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
		fmt.Fprintf(w, "Medians of ratios within a round, [smallest..largest]. A figure below its bound is marked ✗, one that reaches the aim ★.\n\n")
		fmt.Fprintf(w, "| what | at least |%s\n|---|---|%s\n", cells(regimes), strings.Repeat("---|", len(regimes)))
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
	return fmt.Sprintf("%s, %s: %d rounds of %g s; %s; commit %s. Others used %s%% of the machine's CPU time during the cells.",
		run.Began.UTC().Format("2006-01-02 15:04 UTC"), run.Machine, run.Rounds, run.Seconds, run.Versions, run.Commit, spreadText(busy))
}

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
			row := []string{m.Row, boundText(m)}
			for _, r := range regimes {
				row = append(row, mustCell(compare(run, s, m, r), m))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func mustCell(f figure, m scenario.Must) string {
	switch f.verdict(m.AtMost) {
	case missed:
		return "✗ " + spreadText(f.spread)
	case aimReached:
		return "★ " + spreadText(f.spread)
	default:
		return spreadText(f.spread)
	}
}

// boundText is the bound if it is the same in all regimes, and else each.
func boundText(m scenario.Must) string {
	words := map[string][]string{}
	var order []string
	for _, r := range scenario.Regimes {
		b, ok := m.Bounds[r]
		if !ok {
			continue
		}
		text := number(b.Least)
		if m.AtMost {
			text = "at most " + text
		}
		if words[text] == nil {
			order = append(order, text)
		}
		words[text] = append(words[text], r.String())
	}
	if len(order) == 1 {
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
	fmt.Fprintf(w, "### %s (`%s`)\n\n%s\n\n| contender |%s\n|---|%s\n", s.Title, s.Name, s.About, cells(regimes), strings.Repeat("---|", len(regimes)))
	for _, c := range s.Contenders {
		fmt.Fprintf(w, "| %s |", c.Name)
		for _, r := range regimes {
			fmt.Fprintf(w, " %s |", rateCell(run, s, c, r))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}

// rateCell is "1,234/s, 0.42 [0.36..0.50] ×".
func rateCell(run *result.Run, s scenario.Scenario, c scenario.Contender, r result.Regime) string {
	rate := spreadOf(run, s, c.Name, r, result.Rate)
	if rate.Count == 0 {
		return "-"
	}
	text := number(rate.Median) + "/s"
	baseline := best(run, s, s.Baseline, r)
	if baseline != c.Name && baseline != "" {
		f := compare(run, s, scenario.Must{Contender: c.Name, Metric: result.Rate, Compared: scenario.AsRatio}, r)
		text += ", × " + spreadText(f.spread)
	}
	return text
}
