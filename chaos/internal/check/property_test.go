package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// found returns the finding of a property.
func found(t *testing.T, r *check.Record, property string) check.Finding {
	t.Helper()
	for _, f := range check.All(r) {
		if f.Property == property {
			return f
		}
	}
	require.Fail(t, "no such property", property)
	return check.Finding{}
}

// spoiled is a good run with one thing changed.
type spoiled struct {
	name  string
	spoil func(m *made)
	want  check.Status
}

// flags checks that each spoiled run has the status that it should have, and an example if violated.
func flags(t *testing.T, property string, table []spoiled) {
	require.Equal(t, check.Held, found(t, &good().Record, property).Status)
	for _, s := range table {
		t.Run(s.name, func(t *testing.T) {
			m := good()
			s.spoil(m)
			f := found(t, &m.Record, property)
			require.Equal(t, s.want, f.Status, "%+v", f)
			require.NotEmpty(t, f.Detail)
			if s.want == check.Violated {
				require.NotEmpty(t, f.Examples)
			}
		})
	}
}

func TestAll_HoldsForAGoodRun(t *testing.T) {
	for _, f := range check.All(&good().Record) {
		require.Equal(t, check.Held, f.Status, "%+v", f)
		require.NotEmpty(t, f.Title)
		require.NotEmpty(t, f.Detail)
	}
}

// Few properties apply to a control, and none of the data to a user's workload.
func TestAll_SaysWhatDoesNotApply(t *testing.T) {
	relevant := func(fenced, stock bool) (names []string) {
		m := good()
		m.Fenced, m.Stock = fenced, stock
		for _, f := range check.All(&m.Record) {
			if f.Status != check.Irrelevant {
				names = append(names, f.Property)
			}
		}
		return names
	}
	require.Equal(t, []string{"I1", "I2", "I3", "I5", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "run", "workload"}, relevant(true, true))
	require.Equal(t, []string{"I1", "I5", "I7", "I8", "I9", "I11", "I12", "I13", "run", "workload"}, relevant(true, false))
	require.Equal(t, []string{"I2", "I3", "I9", "run", "workload"}, relevant(false, true))
	require.Equal(t, []string{"I9", "run", "workload"}, relevant(false, false))
}

func TestRunAndWorkload_PassOnWhatTheySaid(t *testing.T) {
	flags(t, "run", []spoiled{{"it hung", func(m *made) { m.Wrong = "chaos: it hangs" }, check.Violated}})
	flags(t, "workload", []spoiled{{"it failed", func(m *made) { m.Workload = "sku/1: sold out of nothing" }, check.Violated}})
}

func TestHits_OfOneEvent(t *testing.T) {
	for want, e := range map[string]history.Event{
		"fault cut":                   {Kind: history.Injected, Name: "cut w1 from etcd"},
		"paused at await: SQL answer": {Kind: history.Reached, Point: "await: SQL answer", Name: history.ThenPause},
		"rejected at begin":           {Kind: history.Rejected, Reason: "stale", Stage: "begin"},
		"rejected at seal":            {Kind: history.Rejected, Reason: "stale", Stage: "seal"},
		"rejected at run":             {Kind: history.Rejected, Reason: "stale", Stage: "run", Cause: "terminating connection"}, // an eviction
		"resolved applied":            {Kind: history.Resolved, Applied: true},
		"resolved not applied":        {Kind: history.Resolved},
	} {
		require.Equal(t, map[string]int{want: 1}, check.Hits(&check.Record{Events: []history.Event{e}}))
	}
	for _, e := range []history.Event{
		{Kind: history.Rejected, Reason: "stale", Stage: "seal", Cause: "unexpected EOF"}, // the connection had failed
		{Kind: history.Rejected, Reason: "overtaken", Stage: "seal"},
		{Kind: history.Resolved, Error: "the database is unavailable"},
		{Kind: history.Reached, Point: "claimed", Name: history.ThenKill},
		{Kind: history.Acquired},
	} {
		require.Empty(t, check.Hits(&check.Record{Events: []history.Event{e}}))
	}
}

// A run without what its scenario requires, or not as often, proves nothing.
func TestRequired(t *testing.T) {
	for requires, want := range map[string]check.Status{
		"":                                   check.Irrelevant,
		check.HitRejected + "seal":           check.Held,
		check.HitRejected + "begin":          check.Unchecked,
		check.AtLeast(1, "rejected at seal"): check.Held,
		check.AtLeast(2, "rejected at seal"): check.Unchecked,
	} {
		m := good()
		if m.Requires = nil; requires != "" {
			m.Requires = []string{requires}
		}
		require.Equal(t, want, found(t, &m.Record, "I11").Status, requires)
	}
}

func TestCount_OfAGoodRun(t *testing.T) {
	require.Equal(t, check.Counts{Operations: 12, OK: 8, Failed: 2, Unknown: 2, Rejections: 1, Faults: 1}, check.Count(&good().Record))
}

func TestProgress(t *testing.T) {
	later := func(op string, by time.Duration) func(m *made) {
		return func(m *made) { m.event(history.OK, op).At += int64(by) }
	}
	flags(t, "I9", []spoiled{
		{"nothing in the last phase", func(m *made) { m.omit(func(e history.Event) bool { return e.Op == "op12" && e.Kind == history.OK }) }, check.Violated},
		{"no operation in the last phase", func(m *made) { m.omit(func(e history.Event) bool { return e.Op == "op12" }) }, check.Violated},
		{"too late in the last phase", later("op12", 2*time.Second), check.Violated},
		{"one that starves, and another that succeeds", func(m *made) {
			m.Events = append(m.Events, m.later(time.Millisecond, history.Event{Kind: history.Invoke, Process: "w7", Op: "op13", Action: "do", Resources: []string{"sku/1"}}),
				m.later(time.Millisecond+m.Progress, history.Event{Kind: history.Fail, Process: "w7", Op: "op13", Class: "context ended"}))
		}, check.Violated},
		{"one that fails at once, and another that succeeds", func(m *made) {
			m.Events = append(m.Events, m.later(time.Millisecond, history.Event{Kind: history.Invoke, Process: "w7", Op: "op13", Action: "do", Resources: []string{"sku/1"}}),
				m.later(2*time.Millisecond, history.Event{Kind: history.Fail, Process: "w7", Op: "op13", Class: "stale token"}))
		}, check.Held},
		{"a failure alone", func(m *made) { m.event(history.OK, "op12").Kind = history.Fail }, check.Violated},
		{"sold out", func(m *made) {
			e := m.event(history.OK, "op12")
			e.Kind, e.Class = history.Fail, history.ClassSoldOut
		}, check.Held},
		{"stuck since before the end of the faults", func(m *made) { m.idle("w9") }, check.Violated},
		{"cut off before the end of the faults", func(m *made) { m.idle("w3") }, check.Held},
		{"left keys", func(m *made) { m.Observed.Left = []string{"chaos/locks/sku%2F1/123-x"} }, check.Violated},
		{"no last phase", func(m *made) { m.omit(func(e history.Event) bool { return e.Name == history.PhaseFinal }) }, check.Unchecked},
		{"faults that never end", func(m *made) { m.omit(func(e history.Event) bool { return e.Name == history.PhaseFaultsOver }) }, check.Unchecked},
		{"no bound", func(m *made) { m.Progress = 0 }, check.Unchecked},
	})
}

// later is an event that happens so long after the beginning of the last phase.
func (m *made) later(by time.Duration, e history.Event) history.Event {
	for _, phase := range m.Events {
		if phase.Name == history.PhaseFinal {
			e.At = phase.At + int64(by)
		}
	}
	return e
}

// idle leaves no operation on sku/1 between the end of the faults and the last phase, which
// is long after it; process is the process of the last operation before.
func (m *made) idle(process string) {
	m.event(history.Invoke, "op8").Process = process
	m.omit(func(e history.Event) bool { return e.Op == "op10" })
	m.without("op10")
	last := false
	for i := range m.Events {
		last = last || m.Events[i].Name == history.PhaseFinal
		if last {
			m.Events[i].At += int64(5 * time.Second)
		}
	}
}
