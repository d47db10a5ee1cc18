package soak_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// good is a ledger after one operation, as it ought to be.
func good() (ledger, map[string]*opTrace) {
	plan := planned(1, "0.0")
	var l ledger
	for n := range accounts {
		b := balance{account(n), openingBalance, 0}
		if i := slices.Index(plan.accounts, b.Account); i >= 0 {
			l.movements = append(l.movements, movement{"0.0", b.Account, 1, 7, openingBalance, plan.deltas[i]})
			b.Balance += plan.deltas[i]
			b.Version = 1
		}
		l.accounts = append(l.accounts, b)
	}
	return l, map[string]*opTrace{"0.0": {end: &event{Kind: opEnds, Op: "0.0", Outcome: committed}}}
}

// The checks of the soak notice what they are there for.
func TestLedger_FlagsEachKindOfWrong(t *testing.T) {
	l, ops := good()
	require.Empty(t, l.check(1, ops))
	for name, spoil := range map[string]func(l *ledger, ops map[string]*opTrace){
		"a lost update":                       func(l *ledger, _ map[string]*opTrace) { l.movements[0].Before++ },
		"a version twice":                     func(l *ledger, _ map[string]*opTrace) { l.movements[0].Version++ },
		"a falling token":                     func(l *ledger, _ map[string]*opTrace) { l.movements[0].Token = -1 },
		"a balance from nowhere":              func(l *ledger, _ map[string]*opTrace) { l.accounts[0].Balance++ },
		"an account lost":                     func(l *ledger, _ map[string]*opTrace) { l.accounts = l.accounts[1:] },
		"an operation by half":                func(l *ledger, _ map[string]*opTrace) { l.movements = l.movements[1:] },
		"an operation twice":                  func(l *ledger, _ map[string]*opTrace) { l.movements = append(l.movements, l.movements...) },
		"an operation that no worker started": func(_ *ledger, ops map[string]*opTrace) { delete(ops, "0.0") },
		"an acknowledgement lost":             func(l *ledger, _ map[string]*opTrace) { l.movements = nil },
		"an error with effect":                func(_ *ledger, ops map[string]*opTrace) { ops["0.0"].end.Outcome = failed },
		"a wrong answer of Resolve":           func(_ *ledger, ops map[string]*opTrace) { ops["0.0"].answer = &event{Applied: false} },
		"a deadlock at the caller":            func(_ *ledger, ops map[string]*opTrace) { ops["0.0"].end.Class = "40P01" },
		"an operation that hangs":             func(_ *ledger, ops map[string]*opTrace) { ops["0.0"].end.Late = true },
	} {
		l, ops := good()
		spoil(&l, ops)
		require.NotEmpty(t, l.check(1, ops), name)
	}
	l, ops = good()
	ops["0.0"].end = nil
	require.Empty(t, l.check(1, ops), "an operation that ended with its worker may have taken effect")
}

func TestCounters_FlagEachKindOfWrong(t *testing.T) {
	right := func() ([]counterState, []opSteps, []effect) {
		return []counterState{{counter(0), 2, 2, 2, 2}},
			[]opSteps{{"a", 1, 1}, {"b", 1, 2}},
			[]effect{{"a", 1, committed, 1}, {"b", 1, applied, 0}, {"c", 1, failed, 0}, {"d", 3, notApplied, 0}, {"e", 3, unknown, 0}}
	}
	states, traces, effects := right()
	require.Empty(t, checkCounters(states, traces, effects))
	for name, spoil := range map[string]func(states []counterState, traces []opSteps, effects []effect){
		"a step without a opSteps":            func(s []counterState, _ []opSteps, _ []effect) { s[0].Steps = 1 },
		"a value twice":                       func(s []counterState, _ []opSteps, _ []effect) { s[0].Values = 1 },
		"a value above the last":              func(s []counterState, _ []opSteps, _ []effect) { s[0].Highest = 3 },
		"an effect twice":                     func(_ []counterState, tr []opSteps, _ []effect) { tr[0].Rows = 2 },
		"an effect by half":                   func(_ []counterState, _ []opSteps, e []effect) { e[1].outcome, e[1].rows = unknown, 2 },
		"an acknowledgement lost":             func(_ []counterState, tr []opSteps, e []effect) { e[2].outcome = committed },
		"an error with effect":                func(_ []counterState, _ []opSteps, e []effect) { e[0].outcome = failed },
		"a wrong answer":                      func(_ []counterState, _ []opSteps, e []effect) { e[1].outcome = notApplied },
		"another value returned":              func(_ []counterState, _ []opSteps, e []effect) { e[0].value = 2 },
		"an operation that no worker started": func(_ []counterState, _ []opSteps, e []effect) { e[0].op = "z" },
	} {
		states, traces, effects := right()
		spoil(states, traces, effects)
		require.NotEmpty(t, checkCounters(states, traces, effects), name)
	}
}

func TestGrowth_IsFlagged(t *testing.T) {
	require.False(t, heapWatch{8 << 20, 9 << 20, 8 << 20}.grows())
	require.True(t, heapWatch{8 << 20, 9 << 20, 15 << 20}.grows())
}
