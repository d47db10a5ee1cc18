package review

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed why.html report.html style.html
var pageSources embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"visible": visible,
	"add":     func(a, b int) int { return a + b },
	"clock":   func(at string) string { _, clock, _ := strings.Cut(at, " "); return clock },
	"time":    clock,
}).ParseFS(pageSources, "*.html"))

// HTML writes x as a page that needs nothing else: no script, no other file.
func (x *Explanation) HTML(w io.Writer) error {
	return writePage(w, "why.html", struct {
		*Explanation
		Lines    []historyLine
		Picture  *picture
		Footnote string
	}{x, x.lines(), x.picture(), footnote})
}

// HTML writes the report as a page that needs nothing else: no script, no other file.
func (report *Report) HTML(w io.Writer) error {
	return writePage(w, "report.html", struct {
		Title, Answer string
		Facts         []Fact
		Sections      []section
		Footnote      string
	}{"Report for " + visible(cmp.Or(report.Resources, "*")) + ", " + report.span(), report.Answer, report.facts(), report.sections(), footnote})
}

func writePage(w io.Writer, name string, data any) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, data); err != nil {
		return fmt.Errorf("review: %w", err)
	}
	_, err := w.Write(b.Bytes())
	return err
}
