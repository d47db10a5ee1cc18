package review

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"visible": visible,
	"add":     func(a, b int) int { return a + b },
	"clock":   func(at string) string { _, clock, _ := strings.Cut(at, " "); return clock },
}).Parse(pageSource))

// HTML writes x as a page that needs nothing else: no script, no other file.
func (x *Explanation) HTML(w io.Writer) error {
	var b bytes.Buffer
	err := page.Execute(&b, struct {
		*Explanation
		Lines    []historyLine
		Picture  *picture
		Footnote string
	}{x, x.lines(), x.picture(), footnote})
	if err != nil {
		return fmt.Errorf("review: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}
