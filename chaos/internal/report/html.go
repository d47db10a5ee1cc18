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
