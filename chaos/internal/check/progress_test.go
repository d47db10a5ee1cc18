package check_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

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

// The example says why the last operation failed.
func TestProgress_SaysWhatTheLastOneFailedWith(t *testing.T) {
	examples := func(spoil func(m *made)) []string {
		m := good()
		spoil(m)
		return found(t, &m.Record, "I9").Examples
	}
	failed := examples(func(m *made) {
		e := m.event(history.OK, "op12")
		e.Kind, e.Error = history.Fail, `relation "stok" does not exist`
	})
	require.Len(t, failed, 1)
	require.Regexp(t, `no operation succeeded after the beginning of the last phase; the last one: operation op12 \(.*\): relation "stok" does not exist$`, failed[0])
	open := examples(func(m *made) { m.omit(func(e history.Event) bool { return e.Op == "op12" && e.Kind == history.OK }) })
	require.Contains(t, open[0], ": it did not end")
	none := examples(func(m *made) { m.omit(func(e history.Event) bool { return e.Op == "op12" }) })
	require.Contains(t, none[0], "; the last one: there was no operation")
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
