// Package report writes the results of chaos runs as one HTML file, for people.
//
// # Model
//
// The page opens with the verdict in a sentence, shows the groups side by side under the
// same faults, shows one run as an example (which worker held, which was paused, what was
// rejected, and what a control did under the same schedule), and then gives the figures. A
// figure is a pure function from data to SVG. Its data is reduced to what can be seen before
// it is drawn, so that the size of the page depends on the number of runs alone, and is
// bounded.
//
// The page is self-contained: it has no script, loads nothing, and forbids the
// browser to. Text from runs (names of resources, errors) is untrusted, and is escaped in
// two places only: html/template, and drawing.
//
// The remaining stock in figures is the initial stock minus what orders say was sold, in the
// order of the times at which the operations were answered. It is not the column that
// operations wrote: that one never falls below zero.
//
// # What is not promised
//
// Positions in figures are exact to a pixel. Tracks are drawn from the workers' own events,
// which the checks compare with what was observed; figures prove nothing.
package report

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

//go:embed page
var files embed.FS

var page = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"thousands": thousands, "seconds": seconds, "percent": percent, "cut": cut,
}).ParseFS(files, "page/*.html"))

// HTML writes the report of a judged suite as one page. load reads the files of a run, as
// result.Load does; HTML calls it for one run at a time, and not for all runs. A run for
// which load returns fs.ErrNotExist is left out of the figures. HTML fails if load fails
// otherwise, or if w does.
func HTML(w io.Writer, suite *result.Suite, load func(*result.Run) ([]history.Event, *observe.Observation, error)) error {
	p, err := pageOf(suite, load)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if _, err := w.Write(bytes.Map(visible, b.Bytes())); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// visible replaces control characters, and those that reverse the direction of text. Invalid
// bytes come as utf8.RuneError.
func visible(r rune) rune {
	switch {
	case r < ' ' && r != '\n', r >= 0x7f && r < 0xa0, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return ' '
	}
	return r
}

// content is what the page shows, in its order.
type content struct {
	Style     template.CSS
	Suite     *result.Suite
	Fenced    result.Totals
	Tiles     []tile
	Rows      []sideBySide
	Example   *example
	Tokens    template.HTML
	Props     []*property
	Timings   []timing
	Controls  []control
	Schedules []*schedule
	More      int // number of runs that are not listed
	Versions  []string
	Limits    []string
}

// tile is a figure with its name.
type tile struct{ Figure, Name, Class string }

func pageOf(suite *result.Suite, load loader) (*content, error) {
	style, err := files.ReadFile("page/style.css")
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	p := &content{Style: template.CSS(style), Suite: suite, Fenced: fencedTotals(suite), Props: propertiesOf(suite), Timings: timingsOf(suite), Controls: controlsOf(suite)}
	if p.Example, err = exampleOf(suite, load); err != nil {
		return nil, err
	}
	first := ""
	if p.Example != nil {
		first = p.Example.Scenario
		p.Tokens = p.Example.tokens()
	}
	if p.Rows, err = rowsOf(suite, load, first); err != nil {
		return nil, err
	}
	p.Schedules, p.More = schedulesOf(suite)
	p.Tiles = tilesOf(p.Fenced, p.Controls)
	p.Limits = limitsOf(p.Fenced, p.Controls)
	for _, name := range slices.Sorted(maps.Keys(suite.Versions)) {
		p.Versions = append(p.Versions, cut(name+" "+suite.Versions[name]))
	}
	return p, nil
}

func fencedTotals(suite *result.Suite) result.Totals {
	return result.Sum(slices.DeleteFunc(slices.Clone(suite.Runs), func(r result.Run) bool { return r.Group != result.Fenced }))
}

func tilesOf(fenced result.Totals, controls []control) []tile {
	oversold, lost, broke := 0, 0, 0
	for _, c := range controls {
		oversold, lost = oversold+c.Oversold, lost+c.Lost
		if c.Faults.Red > 0 {
			broke++
		}
	}
	class := func(bad bool) string {
		if bad {
			return "bad"
		}
		return "ok"
	}
	tiles := []tile{
		{thousands(fenced.Violated), "runs violated of " + thousands(fenced.Runs), class(fenced.Violated > 0)},
		{thousands(fenced.Counts.Oversold), "units oversold with the fence", class(fenced.Counts.Oversold > 0)},
		{thousands(fenced.Counts.Lost), "updates lost with the fence", class(fenced.Counts.Lost > 0)},
		{thousands(oversold), "units oversold with the controls", "broke"},
		{thousands(lost), "updates lost with the controls", "broke"},
		{fmt.Sprintf("%d of %d", broke, len(controls)), "controls broke", class(broke < len(controls) || broke == 0)},
		{thousands(fenced.Counts.Operations), "operations", ""},
		{thousands(fenced.Counts.Faults), "faults injected", ""},
		{thousands(fenced.Counts.Rejections), "grants rejected", ""},
	}
	if unknown := fenced.Counts.Unknown; unknown > 0 {
		tiles = append(tiles, tile{thousands(unknown), "operations with an unknown outcome; the checks find whether each took effect once or not at all", ""})
	}
	return tiles
}

// tokens draws the fence of the example's resource.
func (s *example) tokens() template.HTML {
	from, to := bounds(s.fenced.events)
	t := tokensOf(s.fenced, s.takeover.resource)
	if len(t.claims) == 0 {
		return ""
	}
	return drawTokens(fmt.Sprintf("Tokens of %s over time: %d claims, %d rejections", s.takeover.resource, len(t.claims), len(t.rejections)), t, from, to)
}

// Mark is a sign for readers who can't see the verdict's color.
func (p *content) Mark() string {
	switch p.Suite.Verdict {
	case result.Pass:
		return "✓"
	case result.Violated:
		return "✗"
	}
	return "?"
}

// Scheduled says when the suite ran, and for how long.
func (p *content) Scheduled() string {
	return strings.TrimSpace(p.Suite.Started.UTC().Format("2006-01-02 15:04 MST") + ", took " + seconds(p.Suite.Took))
}

// leastRuns is the least number of runs that bounds a share below 100%.
const leastRuns = 4

// limitsOf says what the suite's runs don't prove, with figures where there are any.
func limitsOf(fenced result.Totals, controls []control) []string {
	limits := []string{
		"No number of runs is a proof. The claim is: no violation in so many runs, with faults that broke the controls as often as the table shows.",
	}
	if fenced.Runs >= leastRuns && fenced.Violated == 0 {
		limits = append(limits, fmt.Sprintf("%s without a violation bound the share of runs that violate something: with 95%% confidence it is at most %.2g%%, and only for schedules like these.",
			count(fenced.Runs, "run", "runs"), 300/float64(fenced.Runs)))
	}
	if w := weakest(controls); w != nil && fenced.Runs >= leastRuns {
		limits = append(limits, fmt.Sprintf("The control that these faults break least is %s: %s of its runs. A bug of Fencekit that shows as rarely would have been found in %s with a probability of %s; one that shows more rarely may still be there.",
			w.Title, percent(w.Faults.Rate()), count(fenced.Runs, "run", "runs"), percent(power(w.Faults.Rate(), fenced.Runs))))
	}
	return append(limits,
		"A seed determines operations and faults, not how the machine interleaves them: the same seed is the same schedule, not the same run.",
		"All processes ran on one machine with one clock. Power failures, disks that lie, clocks that jump and real networks are not among the faults.",
		"The fence guards writes to its own database. What an operation does elsewhere (mails, payments, files) can still happen twice.",
		"A fence does not restore what the database itself lost, for example in an asynchronous failover, and does not stop a superuser.",
		"Before the next holder has claimed, the old one may still write: the next one reads only after its claim.",
	)
}
