package review

import (
	"fmt"
	"time"
)

// Row is a line of a Report as JSON lines or CSV. The first is the answer.
type Row struct {
	Kind     string     `json:"kind"` // answer, finding, unguarded, pruned, rejection, void, claim or tenure
	Resource string     `json:"resource,omitempty"`
	At       *time.Time `json:"at,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Position int64      `json:"position,omitempty"`
	Grant    *Grant     `json:"grant,omitempty"`
	Other    *Grant     `json:"other,omitempty"` // who had the resource before, or when the grant was rejected
	Count    int64      `json:"count,omitempty"` // of attempts, or of writes
	Text     string     `json:"text"`
}

// Rows returns the report as rows.
func (report *Report) Rows() []Row {
	rows := []Row{{Kind: "answer", Resource: report.Resources, At: &report.From, Until: &report.Until, Count: report.Counts.Writes, Text: report.Answer}}
	for _, f := range report.Verified.Findings {
		rows = append(rows, Row{Kind: "finding", Resource: f.Resource, Position: f.Seq, Text: f.Text})
	}
	for _, u := range report.Unguarded {
		rows = append(rows, Row{Kind: "unguarded", Resource: u.Resource, At: &u.First, Until: &u.Last, Count: u.Records, Text: u.line()})
	}
	for _, p := range report.Pruned {
		rows = append(rows, Row{Kind: "pruned", Resource: p.Resource, At: &p.At, Position: p.First, Text: "the history begins with " + p.what()})
	}
	for _, r := range report.Rejections {
		rows = append(rows, Row{Kind: "rejection", Resource: r.Resource, At: &r.First, Until: &r.Last, Grant: &r.Rejected, Other: &r.Current, Count: r.Count, Text: r.line()})
	}
	for _, v := range report.Voids {
		rows = append(rows, Row{Kind: "void", Resource: v.Resource, At: &v.At, Position: v.Position, Grant: &v.Grant, Text: "took no effect and never will"})
	}
	for _, c := range report.Claims {
		rows = append(rows, Row{Kind: "claim", Resource: c.Resource, At: &c.At, Position: c.Position, Grant: &c.Grant, Other: c.Before, Text: c.line()})
	}
	for _, t := range report.Tenures {
		rows = append(rows, Row{Kind: "tenure", Resource: t.Resource, At: t.ClaimedAt, Until: t.EndedAt, Grant: &t.Grant, Count: t.Writes, Text: t.line()})
	}
	return rows
}

// Columns are those of CSV.
func (*Report) Columns() []string { return Row{}.Columns() }

// Cells are those of the answer.
func (report *Report) Cells() []string { return report.Rows()[0].Cells() }

// Columns are those of CSV.
func (Row) Columns() []string {
	return []string{"kind", "resource", "at", "until", "position", "epoch", "token", "holder", "other_epoch", "other_token", "other_holder", "count", "text"}
}

// Cells are the values of Columns.
func (r Row) Cells() []string {
	cells := []string{r.Kind, r.Resource, instant(r.At), instant(r.Until), numberOrNone(r.Position)}
	cells = append(append(cells, r.Grant.cells()...), r.Other.cells()...)
	return append(cells, numberOrNone(r.Count), r.Text)
}

func (g *Grant) cells() []string {
	if g == nil {
		return []string{"", "", ""}
	}
	return []string{number(g.Epoch), g.Token.String(), g.Holder}
}

func instant(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.Format(time.RFC3339Nano)
}

func numberOrNone(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
