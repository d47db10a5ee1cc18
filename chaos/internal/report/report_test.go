package report

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

func rendered(t *testing.T, s *check.Suite) (page string) {
	t.Helper()
	text, err := render(s)
	require.NoError(t, err)
	page = string(text)
	require.Contains(t, page, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">`)
	return page
}

func TestHTML_ShowsWhatHeldAndWhatBroke(t *testing.T) {
	t.Parallel()
	suite := sample("sku/1")
	page := rendered(t, suite)
	require.NotRegexp(t, ` (src|srcset|href|on\w+|style)=|<script|url\(|@import`, page, "it loads or runs something")
	require.Contains(t, suite.Reason, "2 of 2 controls broke")
	require.Contains(t, page, `<p class="sentence">`+suite.Reason+"</p>")
	require.Equal(t, 2, strings.Count(page, "A worker is paused between read and write."), "with faults and without")
	require.Equal(t, 2, strings.Count(page, `<li class="broke"><b>Redlock of five nodes</b> violated: 3 operations, 0 faults, 2 oversold, 1 update lost`))
	require.Equal(t, 4, strings.Count(page, `<li class="ok"><b>Fencekit</b> pass: 3 operations, 0 faults; `))
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
	page := rendered(t, s)
	for _, bad := range []string{"<script", "<img", `"'>`, "\x00", "\x1b", "\u202e", "\xff"} {
		require.NotContains(t, page, bad)
	}
	require.Contains(t, page, "&lt;script&gt;alert(1)", "it is there as text")
}
