package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	fencedOK    = Run{Dir: "stop/fenced/seed-1", Scenario: "stop", Family: "pauses", Group: Fenced, Seed: 1, Faults: true, Verdict: Pass, Took: 1500 * time.Millisecond, Counts: Counts{Operations: 100, Faults: 2, Rejections: 1}}
	fencedCalm  = Run{Dir: "stop/fenced/seed-1-calm", Scenario: "stop", Family: "pauses", Group: Fenced, Seed: 1, Verdict: Pass}
	fencedBad   = Run{Scenario: "stop", Family: "pauses", Group: Fenced, Seed: 7, Faults: true, Verdict: Violated, Reason: "I2: 3 oversold", Findings: []Finding{{Property: "I2", Status: Flagged, Examples: []string{"order <5> of w1"}}}}
	fencedVoid  = Run{Scenario: "stop", Family: "pauses", Group: Fenced, Seed: 8, Faults: true, Verdict: Inconclusive, Reason: "I11: required and did not happen: fault pause"}
	redlockRed  = violated("redlock", true, "I2", "I9")
	redlockLoss = violated("redlock", true, "workload") // as the workload says
	redlockHung = violated("redlock", true, "I9", "run")
	redlockOff  = Run{Scenario: "stop", Family: "pauses", Group: "redlock", Seed: 1, Verdict: Pass}
	redlockOffR = violated("redlock", false, "I2")
	redlockOffH = violated("redlock", false, "I9")
	redlockOffV = Run{Scenario: "stop", Family: "pauses", Group: "redlock", Seed: 2, Verdict: Inconclusive, Reason: "I9"}
	redlockOn   = Run{Scenario: "stop", Family: "pauses", Group: "redlock", Seed: 2, Faults: true, Verdict: Pass}
	redlockVoid = Run{Scenario: "stop", Family: "pauses", Group: "redlock", Seed: 3, Faults: true, Verdict: Inconclusive, Reason: "I11"}
	noLockRed   = violated("no-lock", true, "I3")
	noLockOff   = violated("no-lock", false, "I3")
	noLockOffH  = violated("no-lock", false, "I9")
)

// violated is a run of a control that has to break data, with what it violates.
func violated(group string, faults bool, properties ...string) Run {
	r := Run{Dir: "stop/" + group + "/seed-1", Scenario: "stop", Family: "pauses", Group: group, Seed: 1, Faults: faults, Verdict: Violated,
		Reason: properties[0] + ": 4 of it"}
	for _, p := range properties {
		r.Findings = append(r.Findings, Finding{Property: p, Status: Flagged})
	}
	return r
}

var suites = []struct {
	name    string
	runs    []Run
	verdict Verdict
	reason  string
}{
	{"all as it must be", []Run{fencedOK, fencedCalm, redlockRed, redlockOff, noLockRed, noLockOff}, Pass,
		"No violation in 2 runs of 1 scenario (100 operations, 2 faults, 1 rejection as stale); 2 of 2 controls broke under the same faults."},
	{"a control that is red in one of its runs is red", []Run{fencedOK, redlockOn, redlockHung, redlockRed, redlockVoid, redlockOff}, Pass,
		"No violation in 1 run of 1 scenario (100 operations, 2 faults, 1 rejection as stale); 1 of 1 control broke under the same faults."},
	{"a control that is red by the word of the workload", []Run{fencedOK, redlockLoss, redlockOff}, Pass,
		"No violation in 1 run of 1 scenario (100 operations, 2 faults, 1 rejection as stale); 1 of 1 control broke under the same faults."},
	{"a violation", []Run{fencedOK, fencedBad, fencedVoid, redlockRed, redlockOff}, Violated,
		"1 of 3 runs violated a property. The first: stop, fenced, seed 7: I2: 3 oversold."},
	{"a violation counts without controls too", []Run{fencedBad}, Violated,
		"1 of 1 run violated a property. The first: stop, fenced, seed 7: I2: 3 oversold."},
	{"an inconclusive run", []Run{fencedOK, fencedVoid, redlockRed, redlockOff}, Inconclusive,
		"No violation in 2 runs, but the suite is inconclusive: 1 of them inconclusive."},
	{"a control that stays green", []Run{fencedOK, redlockOn, noLockRed, noLockOff}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock survived the faults (0 of 1 red)."},
	{"a control that merely hangs", []Run{fencedOK, redlockOn, redlockHung, redlockOff}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock survived the faults (0 of 1 red, 1 inconclusive)."},
	{"a control that merely hangs without faults", []Run{fencedOK, redlockRed, redlockOffH}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock is not known to hold without faults (0 of 0 red, 1 inconclusive)."},
	{"a control that is to break without faults, and merely hangs", []Run{fencedOK, noLockRed, noLockOffH}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: no-lock is not known to hold without faults (0 of 0 red, 1 inconclusive)."},
	{"a control that did not run without faults", []Run{fencedOK, redlockRed}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock did not run without faults."},
	{"a control that shows nothing without faults", []Run{fencedOK, redlockRed, redlockOff, redlockOffV}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock is not known to hold without faults (0 of 1 red, 1 inconclusive)."},
	{"a control that shows nothing", []Run{fencedOK, redlockVoid}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock survived the faults (0 of 0 red, 1 inconclusive)."},
	{"a control that only ran without faults", []Run{fencedOK, redlockOff}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock did not run with faults."},
	{"a control that is red without faults", []Run{fencedOK, redlockRed, redlockOffR}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: redlock was red without faults as well (1 of 1 red)."},
	{"no control", []Run{fencedOK}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: no control ran."},
	{"Fencekit without faults", []Run{fencedCalm, redlockRed, redlockOff}, Inconclusive,
		"No violation in 1 run, but the suite is inconclusive: no run of Fencekit with faults."},
	{"nothing", nil, Inconclusive,
		"No violation in 0 runs, but the suite is inconclusive: no run of Fencekit with faults; no control ran."},
}

func TestSuite_Judge(t *testing.T) {
	t.Parallel()
	for _, c := range suites {
		suite := &Suite{Runs: c.runs, Groups: []Group{{Name: Fenced}, {Name: "no-lock", RedByDesign: true}, {Name: "redlock"}, {Name: "not run"}}}
		suite.Judge()
		require.Equal(t, c.verdict, suite.Verdict, c.name)
		require.Equal(t, c.reason, suite.Reason, c.name)
	}
}

// A suite that ended early, or from which a run was removed.
func TestSuite_WithoutARunThatWasAskedForShowsNothing(t *testing.T) {
	t.Parallel()
	suite := &Suite{Groups: []Group{{Name: "redlock"}}, Runs: []Run{fencedOK, redlockRed, redlockOff}, Wanted: []string{fencedOK.Dir, redlockRed.Dir}}
	suite.Judge()
	require.Equal(t, Pass, suite.Verdict, suite.Reason)
	suite.Wanted = append(suite.Wanted, "stop/redis/seed-1", "stop/redis/seed-2")
	suite.Judge()
	require.Equal(t, Inconclusive, suite.Verdict)
	require.Equal(t, "No violation in 1 run, but the suite is inconclusive: 2 of 4 runs that were asked for are missing, the first stop/redis/seed-1.", suite.Reason)
	suite.Runs = append(suite.Runs, fencedBad)
	suite.Judge()
	require.Equal(t, Violated, suite.Verdict)
}
