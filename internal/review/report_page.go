package review

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fencekit/fencekit/audit"
)

// Row is a line of a Report as JSON lines or CSV. The first is the answer.
type Row struct {
	Kind     string     `json:"kind"` // answer, finding, unguarded, pruned, rejection, void, claim or tenure
	Resource string     `json:"resource,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Position int64      `json:"position,omitempty"`
	Grant    *Grant     `json:"grant,omitempty"`
	Other    *Grant     `json:"other,omitempty" column:"other_"` // who had the resource before, or when the grant was rejected
	Count    int64      `json:"count,omitempty"`                 // of attempts, or of writes
	Text     string     `json:"text"`
}

// Columns are those of the answer.
func (report *Report) Columns() any { return report.answer() }

func (report *Report) answer() Row {
	return Row{Kind: "answer", Resource: report.Resources, At: &report.From, Until: &report.Until, Count: report.Counts.Writes, Text: report.Answer}
}

// Rows returns the report as rows.
func (report *Report) Rows() ([]Row, error) {
	rows := []Row{report.answer()}
	sections, err := report.sections()
	for _, s := range sections {
		rows = append(rows, s.Rows...)
	}
	return rows, err
}

type section struct {
	Title string
	Rows  []Row
	total int64
}

// More is how many rows aren't in the list.
func (s section) More() int64 { return s.total - int64(len(s.Rows)) }

func sectionOf[T any](title string, total int64, all []T, row func(*T) Row) (s section, err error) {
	s = section{Title: title, total: total}
	for i := range all {
		r := row(&all[i])
		if r.Text, err = sentence("row "+r.Kind, &all[i]); err != nil {
			return s, err
		}
		s.Rows = append(s.Rows, r)
	}
	return s, nil
}

func (report *Report) sections() (all []section, err error) {
	c := report.Counts
	add := func(s section, failed error) {
		all, err = append(all, s), cmp.Or(err, failed)
	}
	add(sectionOf("Findings of the verification", report.Verified.TotalFindings, report.Verified.Findings, func(f *audit.Finding) Row {
		return Row{Kind: "finding", Resource: f.Resource, Position: f.Seq}
	}))
	add(sectionOf("Writes without a guard", c.UnguardedKinds, report.Unguarded, func(u *Unguarded) Row {
		return Row{Kind: "unguarded", Resource: u.Resource, At: &u.First, Until: &u.Last, Count: u.Records}
	}))
	add(sectionOf("Pruned: the history begins here", c.Pruned, report.Pruned, func(p *Pruned) Row {
		return Row{Kind: "pruned", Resource: p.Resource, At: &p.At, Position: p.First}
	}))
	add(sectionOf("Rejected attempts", c.Records, report.Rejections, func(r *Rejection) Row {
		return Row{Kind: "rejection", Resource: r.Resource, At: &r.First, Until: &r.Last, Grant: &r.Rejected, Other: &r.Current, Count: r.Count}
	}))
	add(sectionOf("Unknown outcomes that were ruled out", c.Voids, report.Voids, func(v *Claim) Row {
		return Row{Kind: "void", Resource: v.Resource, At: &v.At, Position: v.Position, Grant: &v.Grant}
	}))
	add(sectionOf("Grants and hand-overs", c.Claims, report.Claims, func(c *Claim) Row {
		return Row{Kind: "claim", Resource: c.Resource, At: &c.At, Position: c.Position, Grant: &c.Grant, Other: c.Before}
	}))
	add(sectionOf("Held longest within this time, from the claim to the last write", int64(len(report.Tenures)), report.Tenures, func(t *Tenure) Row {
		return Row{Kind: "tenure", Resource: t.Resource, At: t.ClaimedAt, Until: t.EndedAt, Grant: &t.Grant, Count: t.Writes}
	}))
	return all, err
}

var reportFacts = []string{"Checked", "Rests on", "Not shown"}

// Text writes the report with lines of at most width characters, as far as words allow. The
// first line has the answer.
func (report *Report) Text(w io.Writer, width int) error {
	p, err := report.page()
	if err != nil {
		return err
	}
	return p.text(w, width)
}

// HTML writes the report as a page.
func (report *Report) HTML(w io.Writer) error {
	p, err := report.page()
	if err != nil {
		return err
	}
	if p.Title, err = sentence("report title", report); err != nil {
		return err
	}
	p.Footnote = footnote
	return p.html(w)
}

func (report *Report) page() (p page, err error) {
	p.Conclusion = report.Answer
	if p.Facts, err = tell(reportFacts, report); err == nil {
		p.Sections, err = report.sections()
	}
	return p, err
}

const textRows = 20

func (s section) write(b *strings.Builder, width int) {
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
		if row.At != nil {
			at = clock(*row.At)
		}
		line := fmt.Sprintf("  %s  %-*s  ", at, longest, visible(row.Resource))
		indent := len(at) + longest + 6
		b.WriteString(line + wrap(row.Text, max(width-indent, minText), strings.Repeat(" ", indent)) + "\n")
	}
	if more := s.total - int64(len(rows)); more > 0 {
		fmt.Fprintf(b, "  and %d more; \"fencectl tokens history RESOURCE\" shows all\n", more)
	}
}
