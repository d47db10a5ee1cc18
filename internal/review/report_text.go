package review

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// section is a list of a Report.
type section struct {
	title string
	rows  []sectionRow
	total int64
}

type sectionRow struct {
	at       time.Time
	resource string
	text     string
}

// textRows is how many rows of each list are on a page.
const textRows = 20

// Text writes the report with lines of at most width characters, as far as words allow. The
// first line has the answer.
func (report *Report) Text(w io.Writer, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", wrap(report.Answer, width, ""))
	if facts := report.facts(); len(facts) > 0 {
		b.WriteString("\n")
		writeFacts(&b, facts, width)
	}
	for _, s := range report.sections() {
		s.text(&b, width)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s section) text(b *strings.Builder, width int) {
	if len(s.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", s.title)
	rows := s.rows[:min(len(s.rows), textRows)]
	longest := 0
	for _, row := range rows {
		longest = max(longest, min(utf8.RuneCountInString(row.resource), minText))
	}
	for _, row := range rows {
		at := strings.Repeat(" ", len(clock(time.Time{})))
		if !row.at.IsZero() {
			at = clock(row.at)
		}
		line := fmt.Sprintf("  %s  %-*s  ", at, longest, visible(row.resource))
		indent := len(at) + longest + 6
		b.WriteString(line + wrap(row.text, max(width-indent, minText), strings.Repeat(" ", indent)) + "\n")
	}
	if more := s.total - int64(len(rows)); more > 0 {
		fmt.Fprintf(b, "  and %d more; \"fencectl tokens history RESOURCE\" shows all\n", more)
	}
}

// sections returns the lists in the order of the page.
func (report *Report) sections() []section {
	c := report.Counts
	findings := section{title: "Findings of the verification", total: report.Verified.TotalFindings}
	for _, f := range report.Verified.Findings {
		findings.rows = append(findings.rows, sectionRow{resource: f.Resource, text: f.Text + position(f.Seq)})
	}
	pruned := section{title: "Pruned: the history begins here", total: c.Pruned}
	for _, p := range report.Pruned {
		pruned.rows = append(pruned.rows, sectionRow{p.At, p.Resource, p.what()})
	}
	unguarded := section{title: "Writes without a guard", total: c.UnguardedKinds}
	for _, u := range report.Unguarded {
		unguarded.rows = append(unguarded.rows, sectionRow{u.First, u.Resource, u.line()})
	}
	rejections := section{title: "Rejected attempts", total: c.Records}
	for _, r := range report.Rejections {
		rejections.rows = append(rejections.rows, sectionRow{r.First, r.Resource, r.line()})
	}
	claims := section{title: "Grants and hand-overs", total: c.Claims}
	for _, one := range report.Claims {
		claims.rows = append(claims.rows, sectionRow{one.At, one.Resource, one.line()})
	}
	voids := section{title: "Unknown outcomes that were ruled out", total: c.Voids}
	for _, v := range report.Voids {
		voids.rows = append(voids.rows, sectionRow{v.At, v.Resource, "a transaction of " + who(v.Grant) + " took no effect and never will" + position(v.Position)})
	}
	return []section{findings, unguarded, pruned, rejections, voids, claims, report.tenures()}
}

// tenures returns the longest tenures.
func (report *Report) tenures() section {
	s := section{title: "Held longest within this time, each at its claim", total: int64(len(report.Tenures))}
	for _, t := range report.Tenures {
		row := sectionRow{resource: t.Resource, text: t.line()}
		if t.ClaimedAt != nil {
			row.at = *t.ClaimedAt
		}
		s.rows = append(s.rows, row)
	}
	return s
}

func position(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (position %d)", n)
}

func (r Rejected) line() string {
	text := who(r.Rejected) + " at stage " + string(r.Stage) + ": " + string(r.Reason)
	if r.Current.Holder != "" {
		text += "; " + who(r.Current) + " had the resource"
	}
	if r.Count > 1 {
		text += fmt.Sprintf("; %d times, until %s", r.Count, clock(r.Last))
	}
	return text + fmt.Sprintf(" (rejection %d)", r.ID)
}

func (c Claim) line() string {
	text := "to " + who(c.Grant)
	switch {
	case c.Before != nil:
		text += " from " + who(*c.Before)
	case c.Position == 1:
		text += ", the first holder"
	}
	return text + position(c.Position)
}

func (t Tenure) line() string {
	text := lasting(time.Duration(t.Seconds*float64(time.Second))) + ": " + who(t.Grant)
	if t.EndedAt != nil {
		text += ", until " + clock(*t.EndedAt)
	}
	if t.LastWrite == nil {
		return text + "; it wrote nothing"
	}
	return text + fmt.Sprintf("; %s, the last at %s", counted(t.Writes, "write"), clock(*t.LastWrite))
}
