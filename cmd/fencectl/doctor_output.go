package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
)

// findingRow is a row of "doctor".
type findingRow struct{ doctor.Finding }

func (findingRow) Columns() []string {
	return []string{"severity", "id", "server", "seen", "why", "fix", "run"}
}

func (f findingRow) Cells() []string {
	return []string{string(f.Severity), f.ID, f.Server, f.Seen, f.Why, f.Fix, strings.Join(f.Run, "\n")}
}

func writeFindings(w io.Writer, format cli.Format, found []doctor.Finding) error {
	if format == cli.FormatTable {
		_, err := io.WriteString(w, findingsText(found, cmp.Or(cli.TerminalWidth(w), cli.UsualWidth)))
		return err
	}
	var rows []findingRow
	for _, f := range found {
		rows = append(rows, findingRow{f})
	}
	return cli.WriteList(w, format, rows)
}

// findingsText groups findings by severity. Commands are not wrapped, so that they can be copied.
func findingsText(found []doctor.Finding, width int) string {
	var b strings.Builder
	for _, severity := range doctor.Severities {
		of := slices.DeleteFunc(slices.Clone(found), func(f doctor.Finding) bool { return f.Severity != severity })
		if len(of) > 0 {
			fmt.Fprintf(&b, "%s\n\n", strings.ToUpper(string(severity)))
		}
		for _, f := range of {
			fmt.Fprintf(&b, "  %s  %s\n", f.ID, f.Server)
			for _, line := range [][2]string{{"seen", f.Seen}, {"why", f.Why}, {"fix", f.Fix}} {
				fmt.Fprintf(&b, "    %-6s%s\n", line[0], strings.ReplaceAll(wrapped(line[1], width-10), "\n", "\n          "))
			}
			for _, command := range f.Run {
				fmt.Fprintf(&b, "          %s\n", command)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// wrapped breaks lines between words, and leaves no space at their ends.
func wrapped(s string, width int) string {
	lines := strings.Split(text.WrapSoft(s, width), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// summary says what was examined and how much was found.
func (d *doctorFlags) summary(r doctor.Report) string {
	servers := append([]string{"etcd was not examined"}, d.databases.names...)
	if d.asksEtcd {
		servers[0] = "etcd at " + strings.Join(d.etcd.endpoints, ",")
	}
	if len(servers) == 1 {
		servers = append(servers, "no database was examined")
	}
	counts := map[doctor.Severity]int{}
	for _, f := range r.Findings {
		counts[f.Severity]++
	}
	var found []string
	for _, severity := range doctor.Severities {
		if n := counts[severity]; n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, severity))
		}
	}
	if len(found) == 0 {
		found = []string{"nothing found"}
	}
	return fmt.Sprintf("%s: %d checks, %s", strings.Join(servers, ", "), r.Checks, strings.Join(found, ", "))
}

// exitOf is the exit code of the worst finding.
func exitOf(found []doctor.Finding) int {
	for _, worst := range []struct {
		severity doctor.Severity
		code     int
	}{{doctor.Violated, cli.ExitViolated}, {doctor.NotReady, cli.ExitNotReady}, {doctor.Inconclusive, cli.ExitInconclusive}} {
		if slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Severity == worst.severity }) {
			return worst.code
		}
	}
	return cli.ExitOK
}
