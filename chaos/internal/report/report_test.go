package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

// render writes the report, and parses it.
func rendered(t *testing.T, s *sample) (text string, root *html.Node) {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, render(&b, s.suite, s.load))
	root, err := html.Parse(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	return b.String(), root
}

// find returns the elements that are wanted, in order.
func find(root *html.Node, wanted func(*html.Node) bool) []*html.Node {
	var found []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode && wanted(n) {
			found = append(found, n)
		}
	}
	return found
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func withClass(class string) func(*html.Node) bool {
	return func(n *html.Node) bool { return strings.Contains(" "+attr(n, "class")+" ", " "+class+" ") }
}

func element(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return n.Data == name }
}

// textOf is all text in an element.
func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return b.String()
}

// requireSelfContained fails if a page would load or run anything.
func requireSelfContained(t *testing.T, root *html.Node) {
	t.Helper()
	known := map[string]bool{}
	for _, name := range strings.Fields(`html head body meta title style main a header section div p h1 h2 h3 h4 b br code span ul ol li dl dt dd
		details summary figure figcaption table thead tbody tr th td svg defs pattern path rect circle text`) {
		known[name] = true
	}
	inside := regexp.MustCompile(`url\(#[a-z]+\)`)
	for _, n := range find(root, func(*html.Node) bool { return true }) {
		require.True(t, known[n.Data], "element %q", n.Data)
		for _, a := range n.Attr {
			switch {
			case strings.HasPrefix(a.Key, "on"), a.Key == "src", a.Key == "srcset", a.Key == "style", a.Key == "action", a.Key == "data", a.Key == "background":
				require.Fail(t, "an attribute that loads or runs something", "%s of %s", a.Key, n.Data)
			case strings.HasSuffix(a.Key, "href"):
				require.True(t, strings.HasPrefix(a.Val, "#"), a.Val)
			}
		}
		if n.Data == "style" {
			css := inside.ReplaceAllString(textOf(n), "")
			require.NotContains(t, css, "url(")
			require.NotContains(t, css, "@import")
		}
	}
	policy := find(root, func(n *html.Node) bool { return attr(n, "http-equiv") == "Content-Security-Policy" })
	require.Len(t, policy, 1)
	require.Equal(t, "default-src 'none'; style-src 'unsafe-inline'", attr(policy[0], "content"))
}

func TestHTML_RefersToNothingOutside(t *testing.T) {
	t.Parallel()
	_, root := rendered(t, realistic())
	requireSelfContained(t, root)
	for _, n := range find(root, element("svg")) {
		require.True(t, attr(n, "aria-hidden") == "true" || attr(n, "role") == "img" && attr(n, "aria-label") != "", "a figure without a label")
	}
}

func TestHTML_ShowsAnExampleRun(t *testing.T) {
	t.Parallel()
	s := realistic()
	_, root := rendered(t, s)
	sentence := find(root, withClass("sentence"))
	require.Equal(t, s.suite.Reason, textOf(sentence[0]))
	require.Contains(t, textOf(sentence[0]), "3 of 3 controls broke")
	var headings []string
	for _, h := range find(root, element("h2")) {
		headings = append(headings, textOf(h))
	}
	require.Equal(t, []string{"Side by side, under the same faults", "One run as an example", "Properties", "Tokens over time", "Controls",
		"Seeds and schedules", "What this does not prove"}, headings)

	panels := find(root, withClass("panel"))
	require.Len(t, panels, 2)
	fenced, control := panels[0], panels[1]
	require.Equal(t, "w1 holds sku/1 with token 7.w1 is paused for 3s.w0 takes over and claims with token 9.w1 goes on and tries to write. It is rejected (✕): its token 7 is older than 9, which has claimed.",
		textOf(find(fenced, element("ol"))[0]))
	require.Equal(t, "held: nothing lost, nothing sold twice", textOf(find(fenced, withClass("outcome"))[0]))
	require.Len(t, find(fenced, withClass("rejected")), 1)
	require.NotEmpty(t, find(fenced, withClass("fenced")))
	require.Empty(t, find(fenced, withClass("debt")))
	require.Empty(t, find(fenced, withClass("both")))
	require.Len(t, find(fenced, withClass("paused")), 1)
	require.Len(t, find(fenced, withClass("mark")), 4)

	require.Contains(t, textOf(control), "w1 goes on and writes: nothing stops it.")
	require.Equal(t, "2 oversold, 1 update lost", textOf(find(control, withClass("outcome"))[0]))
	require.NotEmpty(t, find(control, withClass("debt")))
	require.NotEmpty(t, find(control, withClass("both")))
	require.Empty(t, find(control, withClass("rejected")))

	rows := find(root, withClass("row"))
	require.Len(t, rows, 2)
	require.Contains(t, textOf(rows[0]), "pause-read") // the example's
	cells := find(rows[0], withClass("cell"))
	require.Len(t, cells, 4)
	require.Contains(t, textOf(cells[0]), "held: nothing lost, nothing sold twice")
	require.Empty(t, find(cells[0], withClass("debt")))
	for _, c := range cells[1:] {
		require.Equal(t, "cell broke", attr(c, "class"))
		require.NotEmpty(t, find(c, withClass("debt")))
	}
}

// hostile is text that would do harm in HTML, in an attribute, in SVG, in CSS, or
// on a terminal.
const hostile = `"'></title></svg></style><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}` + "\x00\x1b[2J\u202egnp\xff"

func TestHTML_EscapesWhatComesFromRuns(t *testing.T) {
	t.Parallel()
	s := newSample(hostile)
	s.add(hostile+"s", check.Fenced, 1, true, hostile+"r")
	s.add(hostile+"s", hostile+"g", 1, true, hostile+"r")
	for dir := range s.trace {
		t := s.trace[dir]
		for i := range t.events {
			e := &t.events[i]
			e.Name = strings.ReplaceAll(e.Name, "w1", "w1 "+hostile)
			e.Error = hostile
		}
	}
	s.suite.Versions = map[string]string{hostile: hostile}
	s.suite.Scenarios = []check.Scenario{{Name: hostile + "s", Summary: hostile}}
	s.suite.Groups = []check.Group{{Name: check.Fenced}, {Name: hostile + "g", Title: hostile, Flaw: hostile}}
	for i := range s.suite.Runs {
		r := &s.suite.Runs[i]
		r.Findings = append(r.Findings, check.Finding{Property: hostile, Title: hostile, Status: check.Flagged, Detail: hostile, Examples: []string{hostile}})
		r.Reason, r.Verdict = hostile, check.Violated
		r.Schedule = append(r.Schedule, check.Step{Fault: hostile})
	}
	s.suite.Judge()
	text, root := rendered(t, s)
	requireSelfContained(t, root)
	for _, bad := range []string{"<script", "<img", "\x00", "\x1b", "\u202e", "\xff"} {
		require.False(t, strings.Contains(text, bad), "%q", bad)
	}
	require.True(t, strings.Contains(textOf(root), "<script>alert(1)</script>"), "it is there as text")
	require.Len(t, find(root, withClass("panel")), 2)
}
