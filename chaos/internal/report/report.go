// Package report writes the results of chaos runs as one HTML file, for people.
//
// The page is self-contained: it has no script, loads nothing, and forbids the browser to. Text from runs
// is untrusted, and html/template escapes it.
package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

//go:embed page
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"thousands": thousands, "seconds": seconds, "cut": cut,
}).ParseFS(files, "page/*.html"))

// Write writes the report of a judged suite to its directory.
func Write(dir string, suite *check.Suite) error {
	text, err := render(suite)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, check.ReportFile), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("chaos: the report: %w", err)
	}
	return nil
}

type content struct {
	Style     template.CSS
	Suite     *check.Suite
	Props     []*property
	Controls  []control
	Schedules []*schedule
}

func render(suite *check.Suite) ([]byte, error) {
	style, err := files.ReadFile("page/style.css")
	if err != nil {
		return nil, err
	}
	p := &content{
		Style: template.CSS(style), Suite: suite, Controls: controlsOf(suite), Schedules: schedulesOf(suite),
		Props: propertiesOf(runsOf(suite, func(r check.Run) bool { return r.Group == check.Fenced })),
	}
	var b bytes.Buffer
	err = page.Execute(&b, p)
	return bytes.Map(visible, b.Bytes()), err
}

func runsOf(suite *check.Suite, wanted func(check.Run) bool) (runs []check.Run) {
	for _, r := range suite.Runs {
		if wanted(r) {
			runs = append(runs, r)
		}
	}
	return runs
}

// visible replaces control characters, and those that reverse the direction of text.
func visible(r rune) rune {
	switch {
	case r < ' ' && r != '\n', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return ' '
	}
	return r
}

// maxText bounds a text that comes from a run, in bytes.
const maxText = 400

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// seconds writes a time as "2.41s" or "13ms".
func seconds(d time.Duration) string { return d.Round(time.Millisecond).String() }

// thousands writes a number with a comma after each thousand.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}
