package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/fencekit/fencekit/chaos/internal/check"
)

// sample is a suite in which Fencekit holds under two scenarios, and its controls break.
func sample(resource string) *check.Suite {
	s := &check.Suite{
		Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Took: 312 * time.Second, Command: "fencectl-chaos run --seeds 4",
		Versions:  map[string]string{"go": "go1.26.0", "etcd": "3.7.3"},
		Scenarios: []check.Scenario{{Name: "not run"}, {Name: "pause-read", Summary: "A worker is paused between read and write."}, {Name: "pauses"}},
		Groups: []check.Group{
			{Name: check.Fenced, Title: "Fencekit"}, {Name: "redlock", Title: "Redlock of five nodes", Flaw: "Nothing checks its write."},
			{Name: "no-lock", Title: "No lock", RedByDesign: true},
		},
	}
	for _, scenario := range []string{"pause-read", "pauses"} {
		for _, g := range s.Groups {
			for _, faults := range []bool{true, false} {
				r := check.Run{Scenario: scenario, Group: g.Name, Seed: 1, Faults: faults, Verdict: check.Pass, Counts: check.Counts{Operations: 3},
					Schedule: []check.Step{{At: time.Second, For: time.Second, Fault: "pause w1"}},
					Findings: []check.Finding{{Property: "I2", Title: "nothing is sold twice", Status: check.Held, Detail: "2 effects on " + resource}}}
				if g.Name != check.Fenced && faults {
					r.Verdict, r.Counts.Oversold, r.Counts.Lost = check.Violated, 2, 1
					r.Findings[0].Status, r.Findings[0].Examples = check.Flagged, []string{resource + ": 7 of 5 were sold"}
				}
				s.Runs = append(s.Runs, r)
			}
		}
	}
	s.Judge()
	return s
}

// rendered renders the report, and parses it.
func rendered(t *testing.T, s *check.Suite) (text string, root *html.Node) {
	t.Helper()
	page, err := render(s)
	require.NoError(t, err)
	root, err = html.Parse(bytes.NewReader(page))
	require.NoError(t, err)
	return string(page), root
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
		details summary table thead tbody tr th td`) {
		known[name] = true
	}
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
			require.NotContains(t, textOf(n), "url(")
			require.NotContains(t, textOf(n), "@import")
		}
	}
	policy := find(root, func(n *html.Node) bool { return attr(n, "http-equiv") == "Content-Security-Policy" })
	require.Len(t, policy, 1)
	require.Equal(t, "default-src 'none'; style-src 'unsafe-inline'", attr(policy[0], "content"))
}

func TestHTML_ShowsWhatHeldAndWhatBroke(t *testing.T) {
	t.Parallel()
	suite := sample("sku/1")
	_, root := rendered(t, suite)
	requireSelfContained(t, root)
	sentence := find(root, withClass("sentence"))
	require.Equal(t, suite.Reason, textOf(sentence[0]))
	require.Contains(t, textOf(sentence[0]), "2 of 2 controls broke")
	var headings []string
	for _, h := range find(root, element("h2")) {
		headings = append(headings, textOf(h))
	}
	require.Equal(t, []string{"Side by side, under the same faults", "Properties", "Controls", "Seeds and schedules", "What this does not prove"}, headings)
	rows := find(root, withClass("row"))
	require.Len(t, rows, 2)
	require.Contains(t, textOf(rows[0]), "pause-read")
	cells := find(rows[0], withClass("cell"))
	require.Len(t, cells, 3)
	require.Contains(t, textOf(cells[0]), "held: nothing lost, nothing sold twice")
	for _, c := range cells[1:] {
		require.Equal(t, "cell broke", attr(c, "class"))
		require.Contains(t, textOf(c), "2 oversold, 1 update lost")
	}
}

// hostile is text that would do harm in HTML, in an attribute, in CSS, or
// on a terminal.
const hostile = `"'></title></svg></style><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}` + "\x00\x1b[2J\u202egnp\xff"

func TestHTML_EscapesWhatComesFromRuns(t *testing.T) {
	t.Parallel()
	s := sample(hostile)
	s.Command, s.Versions = hostile, map[string]string{hostile: hostile}
	s.Scenarios = []check.Scenario{{Name: hostile, Summary: hostile}}
	s.Groups = []check.Group{{Name: check.Fenced}, {Name: "redlock", Title: hostile, Flaw: hostile}}
	for i := range s.Runs {
		r := &s.Runs[i]
		r.Findings = append(r.Findings, check.Finding{Property: hostile, Title: hostile, Status: check.Flagged, Detail: hostile, Examples: []string{hostile}})
		r.Scenario, r.Dir, r.Reason, r.Verdict = hostile, hostile, hostile, check.Violated
		r.Schedule = append(r.Schedule, check.Step{Fault: hostile})
	}
	s.Judge()
	text, root := rendered(t, s)
	requireSelfContained(t, root)
	for _, bad := range []string{"<script", "<img", "\x00", "\x1b", "\u202e", "\xff"} {
		require.False(t, strings.Contains(text, bad), "%q", bad)
	}
	require.True(t, strings.Contains(textOf(root), "<script>alert(1)</script>"), "it is there as text")
	require.Len(t, find(root, withClass("cell")), 4)
}
