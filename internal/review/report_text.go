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
	Title string
	Rows  []sectionRow
	total int64
}

// More is how many rows aren't in the list.
func (s section) More() int64 { return s.total - int64(len(s.Rows)) }

type sectionRow struct {
	At       time.Time
	Resource string
	Text     string
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
	if len(s.Rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", s.Title)
	rows := s.Rows[:min(len(s.Rows), textRows)]
	longest := 0
	for _, row := range rows {
		longest = max(longest, min(utf8.RuneCountInString(row.Resource), minText))
	}
	for _, row := range rows {
		at := strings.Repeat(" ", len(clock(time.Time{})))
		if !row.At.IsZero() {
			at = clock(row.At)
		}
		line := fmt.Sprintf("  %s  %-*s  ", at, longest, visible(row.Resource))
		indent := len(at) + longest + 6
		b.WriteString(line + wrap(row.Text, max(width-indent, minText), strings.Repeat(" ", indent)) + "\n")
	}
	if more := s.total - int64(len(rows)); more > 0 {
		fmt.Fprintf(b, "  and %d more; \"fencectl tokens history RESOURCE\" shows all\n", more)
	}
}

// sections returns the lists in the order of the page.
func (report *Report) sections() []section {
	c := report.Counts
	findings := section{Title: "Findings of the verification", total: report.Verified.TotalFindings}
	for _, f := range report.Verified.Findings {
		findings.Rows = append(findings.Rows, sectionRow{Resource: f.Resource, Text: f.Text + position(f.Seq)})
	}
	pruned := section{Title: "Pruned: the history begins here", total: c.Pruned}
	for _, p := range report.Pruned {
		pruned.Rows = append(pruned.Rows, sectionRow{p.At, p.Resource, p.what()})
	}
	unguarded := section{Title: "Writes without a guard", total: c.UnguardedKinds}
	for _, u := range report.Unguarded {
		unguarded.Rows = append(unguarded.Rows, sectionRow{u.First, u.Resource, u.line()})
	}
	rejections := section{Title: "Rejected attempts", total: c.Records}
	for _, r := range report.Rejections {
		rejections.Rows = append(rejections.Rows, sectionRow{r.First, r.Resource, r.line()})
	}
	claims := section{Title: "Grants and hand-overs", total: c.Claims}
	for _, one := range report.Claims {
		claims.Rows = append(claims.Rows, sectionRow{one.At, one.Resource, one.line()})
	}
	voids := section{Title: "Unknown outcomes that were ruled out", total: c.Voids}
	for _, v := range report.Voids {
		voids.Rows = append(voids.Rows, sectionRow{v.At, v.Resource, "a transaction of " + who(v.Grant) + " took no effect and never will" + position(v.Position)})
	}
	return []section{findings, unguarded, pruned, rejections, voids, claims, report.tenures()}
}

// tenures returns the longest tenures.
func (report *Report) tenures() section {
	s := section{Title: "Held longest within this time, from the claim to the last write", total: int64(len(report.Tenures))}
	for _, t := range report.Tenures {
		row := sectionRow{Resource: t.Resource, Text: t.line()}
		if t.ClaimedAt != nil {
			row.At = *t.ClaimedAt
		}
		s.Rows = append(s.Rows, row)
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
	if t.LastWrite == nil {
		text += "; it wrote nothing"
	} else {
		text += fmt.Sprintf("; %s, the last at %s", counted(t.Writes, "write"), clock(*t.LastWrite))
	}
	if t.EndedAt != nil {
		text += "; the next claim at " + clock(*t.EndedAt)
	}
	return text
}
