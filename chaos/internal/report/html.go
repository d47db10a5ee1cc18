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

// HTML writes the report of a suite that was judged, as one page. load reads what
// was kept of a run, as result.Load does: one run at a time, and not all runs; one
// that it says is not there (fs.ErrNotExist) is left out of the figures. It fails
// if load does in another way, or w.
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

// visible replaces what has no place in a text: control characters, and those that
// make text run backwards. Bytes that are no text come as utf8.RuneError.
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
	Story     *story
	Tokens    template.HTML
	Props     []*property
	Timings   []timing
	Controls  []control
	Schedules []*schedule
	More      int // runs that are not listed
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
	if p.Story, err = storyOf(suite, load); err != nil {
		return nil, err
	}
	first := ""
	if p.Story != nil {
		first = p.Story.Scenario
		p.Tokens = p.Story.tokens()
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
		{thousands(fenced.Counts.Oversold) + " / " + thousands(fenced.Counts.Lost), "units oversold / updates lost, with the fence", class(fenced.Counts.Oversold+fenced.Counts.Lost > 0)},
		{thousands(oversold) + " / " + thousands(lost), "units oversold / updates lost, by the controls", "broke"},
		{fmt.Sprintf("%d of %d", broke, len(controls)), "controls broke", class(broke < len(controls) || broke == 0)},
		{thousands(fenced.Counts.Operations), "operations", ""},
		{thousands(fenced.Counts.Faults), "faults struck", ""},
		{thousands(fenced.Counts.Rejections), "late writers rejected", ""},
	}
	if unknown := fenced.Counts.Unknown; unknown > 0 {
		tiles = append(tiles, tile{thousands(unknown), "answers never reached their callers; the checks look whether each took effect once or not at all", ""})
	}
	return tiles
}

// tokens draws the fence of the story's resource.
func (s *story) tokens() template.HTML {
	from, to := bounds(s.fenced.events)
	t := tokensOf(s.fenced, s.turn.resource)
	if len(t.claims) == 0 {
		return ""
	}
	return drawTokens(fmt.Sprintf("Tokens of %s over time: %d claims, %d rejections", s.turn.resource, len(t.claims), len(t.rejections)), t, from, to)
}

// Mark is a sign for those who can't tell the verdict's color.
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
