// Package report writes the results of chaos runs as one HTML file, for people.
//
// The page is self-contained: it has no script, loads nothing, and forbids the browser to. Text from runs
// is untrusted, and is escaped in two places only: html/template, and drawing. Tracks are drawn from the
// workers' own events: figures prove nothing.
package report

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

//go:embed page
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"thousands": thousands, "seconds": seconds, "cut": cut,
}).ParseFS(files, "page/*.html"))

// Write writes the report of a judged suite to its directory.
func Write(dir string, suite *check.Suite) error {
	var b bytes.Buffer
	err := render(&b, suite, func(run *check.Run) ([]history.Event, observe.Observation, error) { return check.Load(dir, run) })
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, check.ReportFile), b.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("chaos: the report: %w", err)
	}
	return nil
}

// loader reads the files of a run, as check.Load does.
type loader func(*check.Run) ([]history.Event, observe.Observation, error)

type trace struct {
	run      *check.Run
	events   []history.Event
	observed observe.Observation
}

// trace is nil if the files of the run were not kept.
func (load loader) trace(run *check.Run) (*trace, error) {
	events, observed, err := load(run)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(events) == 0 {
		return nil, nil
	}
	return &trace{run, events, observed}, err
}

type content struct {
	Style     template.CSS
	Suite     *check.Suite
	Fenced    check.Totals
	Damage    check.Counts // of all controls, with faults
	Rows      []sideBySide
	Example   *example
	Props     []*property
	Controls  []control
	Schedules []*schedule
}

func render(w io.Writer, suite *check.Suite, load loader) error {
	style, err := files.ReadFile("page/style.css")
	if err != nil {
		return err
	}
	fenced := runsOf(suite, func(r check.Run) bool { return r.Group == check.Fenced })
	p := &content{
		Style: template.CSS(style), Suite: suite, Fenced: check.Sum(fenced),
		Damage: check.Sum(runsOf(suite, func(r check.Run) bool { return r.Group != check.Fenced && r.Faults })).Counts,
		Props:  propertiesOf(fenced), Controls: controlsOf(suite), Schedules: schedulesOf(suite),
	}
	if p.Example, err = exampleOf(suite, load); err != nil {
		return err
	}
	if p.Rows, err = rowsOf(suite, load, p.Example); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, p); err != nil {
		return err
	}
	_, err = w.Write(bytes.Map(visible, b.Bytes()))
	return err
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

func (p *content) Broke() (n int) {
	for _, c := range p.Controls {
		n += min(c.Faults.Red, 1)
	}
	return n
}
