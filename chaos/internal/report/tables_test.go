package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/result"
)

func TestPropertiesOf_AddsUpTheRunsUnderTheFramework(t *testing.T) {
	t.Parallel()
	judged := func(group string, seed uint64, statuses ...check.Status) result.Run {
		r := result.Run{Scenario: "s", Group: group, Seed: seed, Faults: true}
		for i, s := range statuses {
			r.Findings = append(r.Findings, check.Finding{Property: fmt.Sprint("I", i+1), Title: "title", Status: s, Detail: string(s) + " detail", Examples: nil})
		}
		return r
	}
	bad := judged(result.Fenced, 3, check.Violated, check.Held, check.Unchecked, check.Irrelevant)
	for i := range 20 {
		bad.Findings[0].Examples = append(bad.Findings[0].Examples, fmt.Sprint("example ", i))
	}
	props := propertiesOf(&result.Suite{Runs: []result.Run{
		judged(result.Fenced, 1, check.Held, check.Held, check.Irrelevant, check.Irrelevant), judged("redlock", 2, check.Violated, check.Violated), bad,
	}})
	require.Len(t, props, 4)
	require.Equal(t, []string{"bad", "ok", "nothing", ""}, []string{props[0].Class, props[1].Class, props[2].Class, props[3].Class})
	require.Equal(t, []int{1, 1, 0, 0}, []int{props[0].Held, props[0].Violated, props[0].Unchecked, props[0].Irrelevant})
	require.Equal(t, "s, fenced, seed 3: violated detail", props[0].Detail)
	require.Len(t, props[0].Examples, maxExamples)
	require.Equal(t, "s, fenced, seed 3: example 0", props[0].Examples[0])
	require.Equal(t, "s, fenced, seed 1: held detail", props[1].Detail)
	require.Equal(t, "irrelevant detail", props[3].Detail)
}

func TestRowsOf_OneSeedThatShowsMost(t *testing.T) {
	t.Parallel()
	findings := map[result.Verdict][]check.Finding{result.Violated: updatesLost}
	r := func(group string, seed uint64, verdict result.Verdict) result.Run {
		return result.Run{Scenario: "s", Group: group, Seed: seed, Faults: true, Verdict: verdict, Findings: findings[verdict], Breaks: check.OfData()}
	}
	suite := &result.Suite{
		Groups: []result.Group{{Name: "z"}, {Name: "b"}, {Name: result.Fenced}},
		Runs: []result.Run{
			r("b", 1, result.Violated), r("z", 1, result.Violated), r("a", 1, result.Violated), // no run of Fencekit
			r(result.Fenced, 2, result.Pass), r("b", 2, result.Pass),
			r("b", 3, result.Violated), r("a", 3, result.Inconclusive), r(result.Fenced, 3, result.Pass), r("z", 3, result.Pass),
			{Scenario: "s", Group: result.Fenced, Seed: 9, Verdict: result.Violated}, // without faults
		},
	}
	rows, err := rowsOf(suite, (&sample{}).load, "")
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.Equal(t, uint64(3), rows[0].Seed)
	var cells []string
	for _, c := range rows[0].Cells {
		cells = append(cells, c.Title+" "+c.Class+": "+c.Summary)
	}
	require.Equal(t, []string{"fenced ok: held: 0 oversold, 0 lost", "a nothing: inconclusive", "z green: not broken by this seed", "b broke: broke I2"}, cells)

	suite.Runs = append(suite.Runs, r(result.Fenced, 1, result.Violated))
	rows, err = rowsOf(suite, (&sample{}).load, "")
	require.NoError(t, err)
	require.Equal(t, uint64(1), rows[0].Seed)
	require.Equal(t, "bad", rows[0].Cells[0].Class)
}

func TestScenarios_TheExamplesFirst(t *testing.T) {
	t.Parallel()
	suite := &result.Suite{
		Scenarios: []result.Scenario{{Name: "c"}, {Name: "not run"}, {Name: "a"}},
		Runs:      []result.Run{{Scenario: "x"}, {Scenario: "a"}, {Scenario: "b"}, {Scenario: "c"}},
	}
	require.Equal(t, []string{"b", "c", "a", "x"}, scenarios(suite, "b"))
	require.Equal(t, []string{"c", "a", "x", "b"}, scenarios(suite, ""))
}

func TestSummary_OfARun(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1,200 oversold, 1 update lost", summary(&result.Run{Group: result.Fenced, Verdict: result.Violated, Counts: result.Counts{Oversold: 1200, Lost: 1}}))
	hung := &result.Run{Group: "a", Verdict: result.Violated, Breaks: []string{"I9"}, Findings: []check.Finding{{Property: "I9", Status: check.Violated}, {Property: "I3", Status: check.Held}}}
	require.Equal(t, "broke I9", summary(hung))
	require.Equal(t, "broke", class(hung))
	hung.Breaks = check.OfData()
	require.Equal(t, "not broken: violated in I9 alone", summary(hung))
	require.Equal(t, "nothing", class(hung))
}

// updatesLost are the findings of a run that lost updates.
var updatesLost = []check.Finding{{Property: "I2", Status: check.Violated}}

func TestControlsOf_SaysWhatBroke(t *testing.T) {
	t.Parallel()
	broke := result.Run{Group: "a", Faults: true, Verdict: result.Violated, Counts: result.Counts{Oversold: 2, Lost: 3}, Breaks: check.OfData(),
		Findings: []check.Finding{{Property: "I9", Status: check.Violated}, {Property: "I2", Status: check.Violated}, {Property: "I3", Status: check.Held}}}
	controls := controlsOf(&result.Suite{
		Groups: []result.Group{{Name: "a", Title: "A"}, {Name: "d", RedByDesign: true}},
		Runs: []result.Run{broke, broke, {Group: "a", Faults: true, Verdict: result.Pass}, {Group: "a", Verdict: result.Pass, Counts: result.Counts{Lost: 99}},
			{Group: "b", Faults: true, Verdict: result.Pass}, {Group: "d", Faults: true, Verdict: result.Violated, Findings: updatesLost, Breaks: check.OfData()}, {Group: "d", Faults: true, Verdict: result.Pass}, {Group: "d", Verdict: result.Pass}},
	})
	require.Len(t, controls, 3)
	require.Equal(t, "A", controls[0].Title)
	require.Equal(t, "I2, I9", controls[0].Broke)
	require.Equal(t, []int{4, 6}, []int{controls[0].Oversold, controls[0].Lost})
	require.Equal(t, []string{"broke", "broke", "nothing"}, []string{controls[0].Class, controls[1].Class, controls[2].Class})
	require.Equal(t, "A", weakest(controls).Title) // d breaks by design, b never
	require.Nil(t, weakest(controls[1:]))
	require.InDelta(t, 0.75, power(0.5, 2), 1e-9)
}

func TestLimitsOf_StatesWhatTheFiguresBear(t *testing.T) {
	t.Parallel()
	all := strings.Join(limitsOf(result.Totals{Runs: 300}, []control{{Title: "Redlock", Control: result.Control{Faults: result.Colors{Red: 1, Green: 9}}}}), "\n")
	require.Contains(t, all, "300 runs without a violation bound the share of runs that violate something: with 95% confidence it is at most 1%")
	require.Contains(t, all, "is Redlock: 10% of its runs.")
	require.Contains(t, all, "would have been found in 300 runs with a probability of over 99%")
	require.Contains(t, all, "What an operation does elsewhere")
	violated := strings.Join(limitsOf(result.Totals{Runs: 300, Violated: 1}, nil), "\n")
	require.NotContains(t, violated, "without a violation")
	require.NotContains(t, violated, "least")
	few := []control{{Title: "Redlock", Control: result.Control{Faults: result.Colors{Red: 1}}}}
	require.NotContains(t, strings.Join(limitsOf(result.Totals{Runs: 3}, few), "\n"), "%", "three runs bound nothing")
	require.Contains(t, strings.Join(limitsOf(result.Totals{Runs: 4}, few), "\n"), "at most 75%")
}

func TestSchedulesOf_WhatFailedFirst(t *testing.T) {
	t.Parallel()
	suite := &result.Suite{Runs: []result.Run{
		{Scenario: "a", Group: result.Fenced, Seed: 1, Faults: true, Verdict: result.Pass, Schedule: []result.Step{{At: time.Second, For: 2 * time.Second, Fault: "pause w1"}, {At: 3 * time.Second, Fault: "kill w2"}}},
		{Scenario: "a", Group: "redlock", Seed: 1, Faults: true, Verdict: result.Violated, Reason: "I2", Findings: updatesLost, Breaks: check.OfData(), Counts: result.Counts{Operations: 1, Lost: 2}},
		{Scenario: "a", Group: result.Fenced, Seed: 1, Verdict: result.Pass},
		{Scenario: "b", Group: result.Fenced, Seed: 2, Faults: true, Verdict: result.Inconclusive, Reason: "gap"},
	}}
	all, more := schedulesOf(suite)
	require.Zero(t, more)
	require.Len(t, all, 3)
	require.Equal(t, "b", all[0].Scenario)
	require.Equal(t, []string{"a script: see the run's history"}, all[0].Steps)
	require.Equal(t, "gap", all[0].Runs[0].Reason)
	require.Equal(t, []string{"1.00 s pause w1 for 2.00 s", "3.00 s kill w2"}, all[1].Steps)
	require.Len(t, all[1].Runs, 2)
	require.Equal(t, runLine{Group: "redlock", Verdict: "violated", Class: "broke", Reason: "I2", Figures: "1 operation, 0 faults, 2 updates lost"}, all[1].Runs[1])
	require.Equal(t, []string{"no faults"}, all[2].Steps)
	require.False(t, all[2].Faults)
}

func TestFormat_NumbersAndTimes(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0": thousands(0), "999": thousands(999), "1,000": thousands(1000), "−1,234,567": thousands(-1234567),
		"12.3 s": seconds(12345 * time.Millisecond), "2.41 s": seconds(2412 * time.Millisecond), "13 ms": seconds(13 * time.Millisecond),
		"1.5 ms": seconds(1500 * time.Microsecond), "17 µs": seconds(17 * time.Microsecond), "20k": compact(20_000), "-1.5M": compact(-1_500_000), "0.5": compact(0.5), "0 ": compact(math.Copysign(0, -1)) + " ",
		"1 run": count(1, "run", "runs"), "2,000 runs": count(2000, "run", "runs"),
		"0%": percent(0), "under 1%": percent(0.004), "50%": percent(0.5), "over 99%": percent(0.999), "100%": percent(1),
	} {
		require.Equal(t, want, got)
	}
	require.Equal(t, "0", seconds(0))
}
