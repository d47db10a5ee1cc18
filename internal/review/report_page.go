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

type section struct {
	Title string
	Rows  []row
	total int64
}

type row struct {
	Resource string
	At       *time.Time
	Text     string
}

// sectionOf tells of each thing in all by the sentence for its kind.
func sectionOf[T any](title, kind string, total int64, all []T, about func(*T) (resource string, at *time.Time)) (s section, err error) {
	s = section{Title: title, total: total}
	for i := range all {
		text, err := sentence("row "+kind, &all[i])
		if err != nil {
			return s, err
		}
		resource, at := about(&all[i])
		s.Rows = append(s.Rows, row{resource, at, text})
	}
	return s, nil
}

func (report *Report) sections() (all []section, err error) {
	c := report.Counts
	add := func(s section, failed error) {
		all, err = append(all, s), cmp.Or(err, failed)
	}
	claim := func(c *Claim) (string, *time.Time) { return c.Resource, &c.At }
	add(sectionOf("Findings of the verification", "finding", report.Verified.TotalFindings, report.Verified.Findings,
		func(f *audit.Finding) (string, *time.Time) { return f.Resource, nil }))
	add(sectionOf("Writes without a guard", "unguarded", c.UnguardedKinds, report.Unguarded,
		func(u *Unguarded) (string, *time.Time) { return u.Resource, &u.First }))
	add(sectionOf("Pruned: the history begins here", "pruned", c.Pruned, report.Pruned,
		func(p *Pruned) (string, *time.Time) { return p.Resource, &p.At }))
	add(sectionOf("Rejected attempts", "rejection", c.Records, report.Rejections,
		func(r *Rejection) (string, *time.Time) { return r.Resource, &r.First }))
	add(sectionOf("Unknown outcomes that were ruled out", "void", c.Voids, report.Voids, claim))
	add(sectionOf("Grants and hand-overs", "claim", c.Claims, report.Claims, claim))
	add(sectionOf("Held longest within this time, from the claim to the last write", "tenure", int64(len(report.Tenures)), report.Tenures,
		func(t *Tenure) (string, *time.Time) { return t.Resource, t.ClaimedAt }))
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
