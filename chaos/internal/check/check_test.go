package check

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

func TestJudge_AGoodRunPasses(t *testing.T) {
	m := good()
	for _, f := range m.judge() {
		require.Equal(t, Held, f.Status, "%+v", f)
		require.NotEmpty(t, f.Title)
		require.NotEmpty(t, f.Detail)
	}
	require.Equal(t, Pass, m.Verdict)
	require.Equal(t, "13 properties held", m.Reason)
	require.Equal(t, Counts{Operations: 12, Unknown: 2, Rejections: 1, Faults: 1}, m.Counts)
}

// Few properties apply to a control, and none of the data to a user's workload.
func TestJudge_SaysWhatDoesNotApply(t *testing.T) {
	relevant := func(group string, stock bool) (names []string) {
		m := good()
		m.Group, m.Stock = group, stock
		m.judge()
		for _, f := range m.Findings {
			if f.Status != Irrelevant {
				names = append(names, f.Property)
			}
		}
		return names
	}
	require.Equal(t, []string{"I1", "I5", "I7", "I8", "I9", "I11", "I12", "I13", "run", "workload"}, relevant(Fenced, false))
	require.Equal(t, []string{"I2", "I3", "I9", "run", "workload"}, relevant("redlock", true))
	require.Equal(t, []string{"I9", "run", "workload"}, relevant("redlock", false))
}

func TestTokens(t *testing.T) {
	flags(t, "I1", []spoiled{
		{"positions swapped", func(m *made) {
			a, b := m.entry("sku/1", 4), m.entry("sku/1", 5)
			a["seq"], b["seq"] = b["seq"], a["seq"]
		}, Flagged},
		{"a gap", func(m *made) { m.drop(func(c observe.Change) bool { return c.Row["seq"] == "5" }) }, Flagged},
		{"a token that falls", func(m *made) { m.entry("sku/1", writeAfterIt)["claim"] = strconv.Itoa(pausedClaim) }, Flagged},
		{"a claim twice", func(m *made) { m.entry("sku/1", claimAfterIt)["token"] = m.entry("sku/1", pausedClaim)["token"] }, Flagged},
		{"a lower token in a higher epoch", func(m *made) {
			for s := int64(9); s <= 12; s++ {
				m.entry("sku/1", s)["epoch"], m.entry("sku/1", s)["token"] = "2", digits((s-7)/2)
			}
		}, Held},
		{"no log", func(m *made) { m.observed.Commits = nil }, Unchecked},
	})
}

func TestConservation(t *testing.T) {
	flags(t, "I2", []spoiled{
		{"a lost update", func(m *made) { m.order("op3")["seen"] = "20" }, Flagged},
		{"a decision on a stock that never was", func(m *made) { m.order("op1")["seen"] = "77" }, Flagged},
		{"an oversell", func(m *made) {
			m.order("op12")["quantity"] = "17"
			m.observed.Stocks[1].Available = -1
		}, Flagged},
		{"unexplained stock", func(m *made) { m.observed.Stocks[0].Available++ }, Flagged},
		{"an effect on something else", func(m *made) { m.again("op12", "resource", "sku/9") }, Flagged},
		{"a row that vanished", func(m *made) { m.without("op3") }, Flagged},
		{"no stock observed", func(m *made) { m.observed.Stocks = nil }, Unchecked},
	})
}

func TestOutcomes(t *testing.T) {
	flags(t, "I3", []spoiled{
		{"an operation twice", func(m *made) { m.again("op3") }, Flagged},
		{"a cut off one twice", func(m *made) { m.again("op9") }, Flagged},
		{"an unknown one twice", func(m *made) { m.again("op4") }, Flagged},
		{"an acknowledgement of nothing", func(m *made) { m.without("op3") }, Flagged},
		{"an answer of applied and nothing there", func(m *made) { m.without("op4") }, Flagged},
		{"a cut off one that took no effect", func(m *made) { m.without("op9") }, Held},
		{"half of several", func(m *made) {
			m.drop(func(c observe.Change) bool { return c.Row["op"] == "op6" && c.Row["resource"] == "sku/2" })
		}, Flagged},
		{"half of several, cut off", func(m *made) {
			m.drop(func(c observe.Change) bool { return c.Row["op"] == "op6" && c.Row["resource"] == "sku/2" })
			m.omit(func(e history.Event) bool { return e.Op == "op6" && e.Kind == history.OK })
		}, Flagged},
		{"an error with effect", func(m *made) { m.event(history.OK, "op3").Kind = history.Fail }, Flagged},
		{"an answer that it was not applied", func(m *made) { m.event(history.Answer, "op4").Applied = false }, Flagged},
		{"an answer that it was applied", func(m *made) { m.event(history.Answer, "op5").Applied = true }, Flagged},
		{"an effect elsewhere", func(m *made) { m.again("op3", "resource", "sku/2") }, Flagged},
		{"an effect of an unknown operation", func(m *made) { m.again("op3", "op", "op99") }, Flagged},
		{"an id twice", func(m *made) { m.record(*m.event(history.Invoke, "op3")) }, Unchecked},
		{"two ends", func(m *made) { m.record(*m.event(history.OK, "op3")) }, Unchecked},
		{"an end without a beginning", func(m *made) { m.record(history.Event{Kind: history.Fail, Op: "op99"}) }, Unchecked},
	})
}

func TestRegister(t *testing.T) {
	flags(t, "I5", []spoiled{
		{"a stale write after a claim", func(m *made) { m.entry("sku/1", writeAfterIt)["claim"] = strconv.Itoa(pausedClaim) }, Flagged},
		{"a write under a claim that is not there", func(m *made) { m.entry("sku/1", writeAfterIt)["claim"] = "99" }, Flagged},
		{"a void after a claim", func(m *made) {
			row := m.entry("sku/1", writeAfterIt)
			row["kind"], row["claim"] = "v", strconv.Itoa(pausedClaim)
		}, Flagged},
		{"a write without a claim", func(m *made) { m.entry("sku/1", claimAfterIt)["kind"] = "v" }, Flagged},
		{"no log", func(m *made) { m.observed.Commits = nil }, Unchecked},

		// Commits in a right order may still contradict the times of events.
		{"a claim that returned before the predecessor's last write began", func(m *made) {
			m.event(history.Invoke, "op1").At = m.nth("w2", history.Claimed, 1).At + 1
			m.event(history.OK, "op1").At = m.event(history.Invoke, "op1").At + 1
		}, Flagged},
		{"a write that returned before its claim began", func(m *made) { m.event(history.Invoke, "op3").At, m.event(history.OK, "op3").At = 1, 2 }, Flagged},
		{"a rejection before the claim began", func(m *made) { m.rejected().At = m.nth("w1", history.Claimed, 2).At }, Flagged},
		{"a rejection of the newest token", func(m *made) { m.rejected().Token = 1000 }, Flagged},
		{"a rejection for another resource's claim", func(m *made) { m.rejected().Resource = "sku/2" }, Flagged},
		{"everything is rejected", func(m *made) {
			for _, e := range slices.Clone(m.events) {
				if e.Kind == history.Claimed {
					e.Kind, e.Reason, e.Stage, e.Current = history.Rejected, "stale", "claim", e.Token
					m.events = append(m.events, e)
				}
			}
		}, Flagged},
		{"a rejection for another reason", func(m *made) { m.rejected().Reason, m.rejected().Token = "overtaken", 1000 }, Held},
		{"a claim that began after a higher one had returned", func(m *made) {
			after := m.nth("w2", history.Claimed, 1).At
			m.nth("w1", history.Acquired, 2).At, m.nth("w1", history.Claimed, 2).At = after+1, after+2
			m.omit(func(e history.Event) bool { return e.Kind == history.Rejected })
		}, Flagged},
		{"a write of unknown outcome that returned before its claim", func(m *made) {
			e := m.event(history.OK, "op1")
			e.Kind, e.At = history.Unknown, m.event(history.Invoke, "op1").At
		}, Held},
		{"a write that returned late", func(m *made) { m.event(history.OK, "op1").At += int64(time.Hour) }, Held},
		{"a claim without an event", func(m *made) {
			m.omit(func(e history.Event) bool { return e.Kind == history.Claimed || e.Kind == history.Acquired })
		}, Held},
		{"a workload whose rows are unknown", func(m *made) {
			m.Stock = false
			m.drop(func(c observe.Change) bool { return c.Table != observe.TableHistory })
			m.event(history.Invoke, "op3").At, m.event(history.OK, "op3").At = 1, 2
		}, Flagged},
	})
}

func TestProvenance(t *testing.T) {
	key := func(m *made, seq int64) *observe.LockEvent {
		token := m.entry("sku/1", seq)["token"]
		return &m.observed.Locks.Events[slices.IndexFunc(m.observed.Locks.Events, func(k observe.LockEvent) bool { return digits(k.Created) == token && !k.Gone })]
	}
	another := func(change func(k *observe.LockEvent)) func(m *made) {
		return func(m *made) {
			other := *key(m, claimAfterIt)
			change(&other)
			m.observed.Locks.Events = append(m.observed.Locks.Events, other)
		}
	}
	flags(t, "I7", []spoiled{
		{"a token of another resource's key", func(m *made) { key(m, claimAfterIt).Resource = "sku/2" }, Flagged},
		{"a token that etcd never gave", func(m *made) { key(m, pausedClaim).Created++ }, Flagged},
		{"another's token", func(m *made) { key(m, claimAfterIt).Holder = "w9-1" }, Flagged},
		{"two leases for one token", another(func(k *observe.LockEvent) { k.Lease++ }), Flagged},
		{"two holders of one token", another(func(k *observe.LockEvent) { k.Holder = "w9-1" }), Flagged},
		{"a key that was changed later", another(func(k *observe.LockEvent) { k.Revision++ }), Held},
		{"a token in the data that etcd never gave", func(m *made) { m.order("op3")["token"] = "1" }, Flagged},
		{"only the deletion of a key", func(m *made) { key(m, claimAfterIt).Gone = true }, Flagged},
		{"a gap in the watch", func(m *made) { m.observed.Locks = observe.Locks{Gap: "compacted"} }, Unchecked},
		{"no log", func(m *made) { m.observed.Commits = nil }, Unchecked},
	})
}

func TestAgreement(t *testing.T) {
	change := func(action string, row map[string]string) func(m *made) {
		return func(m *made) { m.commit(observe.Change{Table: observe.TableHistory, Action: action, Row: row}) }
	}
	ops := func(text string) func(m *made) { return func(m *made) { m.entry("sku/1", 5)["ops"] = text } }
	flags(t, "I8", []spoiled{
		{"an entry that is gone", func(m *made) { m.observed.Verified.Entries = 3 }, Flagged},
		{"history rewritten", change("UPDATE", nil), Flagged},
		{"history truncated", change("TRUNCATE", nil), Flagged},
		{"an entry without change", func(m *made) { m.without("op3") }, Flagged},
		{"an entry for another operation", ops(`[{"id":"op1"}]`), Flagged},
		{"an entry for one of two operations", func(m *made) { m.again("op3", "op", "op1") }, Flagged},
		{"an entry that names none", ops(`[{"id":""}]`), Held},
		{"a token in the data that is not the entry's", func(m *made) { m.order("op3")["token"] = "77" }, Flagged},
		{"a token that a batch can't know", func(m *made) { m.order("op3")["token"] = "-1" }, Held},
		{"no token in the data, with locks in Postgres", func(m *made) { m.Beside, m.order("op3")["token"] = true, "0" }, Flagged},
		{"a claim that never committed", func(m *made) {
			m.record(history.Event{Kind: history.Claimed, Resource: "sku/1", Epoch: 1, Token: 999, Holder: "w1-999"})
		}, Flagged},
		{"another's claim", func(m *made) { m.nth("w1", history.Claimed, 1).Holder = "w9-1" }, Flagged},
		{"a rejection that was not recorded", func(m *made) { m.observed.Rejections = nil }, Flagged},
		{"a rejection that was recorded once of twice", func(m *made) { m.record(*m.rejected()) }, Flagged},
		{"a rejection that could not be recorded", func(m *made) {
			m.record(history.Event{Kind: history.Rejected, Resource: "sku/1", Reason: "overtaken", Error: "the database is unavailable"})
		}, Held},
		{"a rejection without an event", func(m *made) { m.observed.Rejections[0].Count++ }, Held},
		{"no log", func(m *made) { m.observed, m.events = observe.Observation{}, nil }, Unchecked},
	})
}

func TestRecorded(t *testing.T) {
	change := func(table, action, resource string) func(m *made) {
		return func(m *made) {
			m.commit(observe.Change{Table: table, Action: action, Row: map[string]string{"resource": resource}})
		}
	}
	flags(t, "I10", []spoiled{
		{"a change without an entry", func(m *made) {
			m.drop(func(c observe.Change) bool { return c.Table == observe.TableHistory && c.Row["seq"] == "5" })
		}, Flagged},
		{"a change with another resource's entry", func(m *made) { m.order("op3")["resource"] = "sku/2" }, Flagged},
		{"stock changed by hand", change(observe.TableStock, "UPDATE", "sku/1"), Flagged},
		{"stock in a claim's transaction", func(m *made) {
			row := maps.Clone(m.row(observe.TableStock, func(map[string]string) bool { return true }))
			m.observed.Commits[0].Changes = append(m.observed.Commits[0].Changes, observe.Change{Table: observe.TableStock, Action: "UPDATE", Row: row})
		}, Flagged},
		{"orders deleted", change(observe.TableOrders, "DELETE", ""), Flagged},
		{"truncated", change(observe.TableOrders, "TRUNCATE", ""), Flagged},
		{"no log", func(m *made) { m.observed.Commits = nil }, Unchecked},
	})
}

func TestOwnership(t *testing.T) {
	flags(t, "I12", []spoiled{
		{"a lock granted while another's key is first", func(m *made) {
			first := m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/1"))
			m.release(first)
		}, Flagged},
		{"a lock granted while the first is never released", func(m *made) {
			m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/1"))
		}, Flagged},
		{"a waiter that waits for its neighbour alone", func(m *made) {
			first, between := m.acquire("w1", "sku/1"), m.grant("w2", "sku/1")
			m.gone(between)
			m.release(m.acquire("w3", "sku/1"))
			m.release(first)
		}, Flagged},
		{"a token without a key", func(m *made) {
			m.record((&lock{process: "w1", resource: "sku/1", holder: "w1-0", token: 9999}).event(history.Acquired))
		}, Flagged},
		{"a token of another resource's key", func(m *made) {
			l := *m.grant("w1", "sku/2")
			l.resource = "sku/1"
			m.record(l.event(history.Acquired))
		}, Flagged},
		{"a waiter that gave up", func(m *made) {
			first, waiter := m.acquire("w1", "sku/1"), m.grant("w2", "sku/1")
			m.gone(waiter)
			m.release(first)
		}, Held},
		{"two leases that ended at once", func(m *made) {
			m.gone(m.acquire("w1", "sku/1"))
			m.acquire("w2", "sku/1")
		}, Held},
		{"a queue of another resource", func(m *made) {
			m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/2"))
		}, Held},
		{"a gap in the watch", func(m *made) { m.observed.Locks = observe.Locks{Gap: "it broke"} }, Unchecked},
	})
}

func TestVerified(t *testing.T) {
	flags(t, "I13", []spoiled{
		{"a finding", func(m *made) {
			m.observed.Verified.Findings = []audit.Finding{{Kind: audit.FindingWrongFence, Resource: "sku/1", Text: "wrong"}}
		}, Flagged},
		{"a rejection by a claim that isn't there", func(m *made) {
			m.observed.Verified.Unexplained = []audit.Finding{{Kind: audit.FindingUnexplainedRejection, Resource: "sku/1", Text: "unexplained"}}
		}, Flagged},
		{"no verification", func(m *made) { m.observed.Verified = nil }, Unchecked},
	})
	flags(t, "run", []spoiled{{"it hung", func(m *made) { m.Wrong = "chaos: it hangs" }, Flagged}})
	flags(t, "workload", []spoiled{
		{"it failed", func(m *made) { m.Failed = "sku/1: sold out of nothing" }, Flagged},
		{"no row changed", func(m *made) { m.Stock = false }, Unchecked},
		{"a row of its own changed", func(m *made) { m.Stock, m.observed.Commits[0].Others = false, 1 }, Held},
		{"no row changed, and nothing succeeded", func(m *made) {
			m.Stock = false
			m.omit(func(e history.Event) bool { return e.Kind == history.OK })
		}, Held},
	})
}

func TestProgress(t *testing.T) {
	// An operation that a seventh process begins in the last phase.
	ends := func(after time.Duration) func(m *made) {
		return func(m *made) {
			from := m.event(history.Invoke, "op11").At
			m.events = append(m.events, history.Event{At: from, Kind: history.Invoke, Process: "w7", Op: "op13", Resources: []string{"sku/1"}},
				history.Event{At: from + int64(after), Kind: history.Fail, Process: "w7", Op: "op13"})
		}
	}
	stuck := func(process string) func(m *made) { // since before the end of the faults
		return func(m *made) {
			m.event(history.Invoke, "op8").Process = process
			m.without("op10")
			m.omit(func(e history.Event) bool { return e.Op == "op10" })
		}
	}
	flags(t, "I9", []spoiled{
		{"nothing in the last phase", func(m *made) { m.omit(func(e history.Event) bool { return e.Op == "op12" && e.Kind == history.OK }) }, Flagged},
		{"no operation in the last phase", func(m *made) { m.omit(func(e history.Event) bool { return e.Op == "op12" }) }, Flagged},
		{"too late in the last phase", func(m *made) { m.event(history.OK, "op12").At += int64(2 * time.Second) }, Flagged},
		{"one that starves, and another that succeeds", ends(time.Second), Flagged},
		{"one that fails at once, and another that succeeds", ends(time.Millisecond), Held},
		{"a failure alone", func(m *made) { m.event(history.OK, "op12").Kind = history.Fail }, Flagged},
		{"sold out", func(m *made) {
			e := m.event(history.OK, "op12")
			e.Kind, e.SoldOut = history.Fail, true
		}, Held},
		{"stuck since before the end of the faults", stuck("w9"), Flagged},
		{"cut off before the end of the faults", stuck("w3"), Held},
		{"left keys", func(m *made) { m.observed.Left = []string{"chaos/locks/sku%2F1/123-x"} }, Flagged},
		{"no last phase", func(m *made) { m.omit(func(e history.Event) bool { return e.Name == history.PhaseFinal }) }, Unchecked},
		{"faults that never end", func(m *made) { m.omit(func(e history.Event) bool { return e.Name == history.PhaseFaultsOver }) }, Unchecked},
		{"no bound", func(m *made) { m.Progress = 0 }, Unchecked},
	})
}

func TestHitsOf_OneEvent(t *testing.T) {
	for want, e := range map[string]history.Event{
		"fault cut":                   {Kind: history.Injected, Name: "cut w1 from etcd"},
		"paused at await: SQL answer": {Kind: history.Reached, Point: "await: SQL answer", Name: history.ThenPause},
		"rejected at begin":           {Kind: history.Rejected, Reason: "stale", Stage: "begin"},
		"rejected at seal":            {Kind: history.Rejected, Reason: "stale", Stage: "seal"},
		"rejected at run":             {Kind: history.Rejected, Reason: "stale", Stage: "run", Cause: "terminating connection"}, // an eviction
		"resolved applied":            {Kind: history.Resolved, Applied: true},
		"resolved not applied":        {Kind: history.Resolved},
	} {
		require.Equal(t, map[string]int{want: 1}, hitsOf([]history.Event{e}))
	}
	for _, e := range []history.Event{
		{Kind: history.Rejected, Reason: "stale", Stage: "seal", Cause: "unexpected EOF"}, // the connection had failed
		{Kind: history.Rejected, Reason: "overtaken", Stage: "seal"},
		{Kind: history.Resolved, Error: "the database is unavailable"},
		{Kind: history.Reached, Point: "claimed", Name: history.ThenKill},
		{Kind: history.Acquired},
	} {
		require.Empty(t, hitsOf([]history.Event{e}))
	}
}

// A run without what its scenario requires, or not as often, proves nothing.
func TestRequired(t *testing.T) {
	for _, c := range []struct {
		requires []string
		want     Status
	}{
		{nil, Irrelevant},
		{[]string{HitRejected + "seal"}, Held},
		{[]string{HitRejected + "begin"}, Unchecked},
		{[]string{HitRejected + "seal", HitRejected + "seal"}, Unchecked},
	} {
		m := good()
		m.Requires = c.requires
		require.Equal(t, c.want, m.judge()["I11"].Status, c.requires)
	}
}
