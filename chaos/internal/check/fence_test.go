package check_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// entry returns the entry at a position.
func (m *made) entry(resource string, seq int64) *observe.Entry {
	i := slices.IndexFunc(m.Observed.Entries, func(e observe.Entry) bool { return e.Resource == resource && e.Seq == seq })
	return &m.Observed.Entries[i]
}

// entryRow returns the row of the entry at a position in the write-ahead log.
func (m *made) entryRow(resource string, seq int64) map[string]string {
	number := strconv.FormatInt(m.fences[resource].number, 10)
	for _, c := range m.Observed.Commits {
		for _, change := range c.Changes {
			if change.Table == "fence.history" && change.Row["resource"] == number && change.Row["seq"] == strconv.FormatInt(seq, 10) {
				return change.Row
			}
		}
	}
	return nil
}

// orderRow returns the row of an operation in the write-ahead log.
func (m *made) orderRow(op string) map[string]string {
	for _, c := range m.Observed.Commits {
		for _, change := range c.Changes {
			if change.Table == "public.orders" && change.Row["op"] == op {
				return change.Row
			}
		}
	}
	return nil
}

// drop removes changes from the write-ahead log.
func (m *made) drop(gone func(c observe.Change) bool) {
	for i := range m.Observed.Commits {
		m.Observed.Commits[i].Changes = slices.DeleteFunc(m.Observed.Commits[i].Changes, gone)
	}
}

// The positions of sku/1 in a good run: claim and write of op1 (1, 2), claim of the
// paused w1 (3), claim and write of op3 (4, 5), of op6 (6, 7), and the claim of the
// killed w3 (8).
const pausedClaim, claimAfterIt, writeAfterIt = 3, 4, 5

func TestTokens(t *testing.T) {
	const seq = "seq"
	flags(t, "I1", []spoiled{
		{"positions swapped", func(m *made) {
			a, b := m.entryRow("sku/1", 4), m.entryRow("sku/1", 5)
			a[seq], b[seq] = b[seq], a[seq]
		}, check.Violated},
		{"a gap in the log", func(m *made) { m.drop(func(c observe.Change) bool { return c.Row[seq] == "5" }) }, check.Violated},
		{"a gap in the history", func(m *made) { *m.entry("sku/1", 5) = observe.Entry{} }, check.Violated},
		{"a position twice", func(m *made) { m.entry("sku/1", 5).Seq = 4 }, check.Violated},
		{"a token that falls", func(m *made) { m.entryRow("sku/1", writeAfterIt)["claim"] = m.entryRow("sku/1", pausedClaim)["claim"] }, check.Violated},
		{"a token that falls in the history", func(m *made) { m.entry("sku/1", writeAfterIt).Token = m.entry("sku/1", pausedClaim).Token }, check.Violated},
		{"a claim twice", func(m *made) { m.entryRow("sku/1", claimAfterIt)["token"] = m.entryRow("sku/1", pausedClaim)["token"] }, check.Violated},
		{"a lower token in a higher epoch", func(m *made) {
			for s := int64(9); s <= 12; s++ {
				m.entryRow("sku/1", s)["epoch"], m.entry("sku/1", s).Epoch = "2", 2
				m.entryRow("sku/1", s)["token"], m.entry("sku/1", s).Token = strconv.Itoa(int(s-7)/2), (s-7)/2
			}
		}, check.Held},
		{"no log", func(m *made) { m.Observed.Commits = nil }, check.Unchecked},
		{"another order of entries", func(m *made) { slices.Reverse(m.Observed.Entries) }, check.Held},
	})
}

func TestRegister(t *testing.T) {
	flags(t, "I5", []spoiled{
		{"a stale write after a claim", func(m *made) {
			m.entryRow("sku/1", writeAfterIt)["claim"] = m.entryRow("sku/1", pausedClaim)["claim"]
		}, check.Violated},
		{"a stale write in the data", func(m *made) { m.orderRow("op3")["token"] = m.entryRow("sku/1", pausedClaim)["token"] }, check.Violated},
		{"a write under a claim that is not there", func(m *made) { m.entryRow("sku/1", writeAfterIt)["claim"] = "99" }, check.Violated},
		{"a void after a claim", func(m *made) {
			row := m.entryRow("sku/1", writeAfterIt)
			row["kind"], row["claim"] = "v", m.entryRow("sku/1", pausedClaim)["claim"]
		}, check.Violated},
		{"a write without a claim", func(m *made) { m.entryRow("sku/1", claimAfterIt)["kind"] = "v" }, check.Violated},
		{"no log", func(m *made) { m.Observed.Commits = nil }, check.Unchecked},
	})
}

// Commits in a right order may still contradict the times of events.
func TestRegister_IsLinearizable(t *testing.T) {
	paused := nthEvent("w1", history.Claimed, 2)
	flags(t, "I5", []spoiled{
		{"a claim that returned before the predecessor's last write began", func(m *made) {
			// w2's claim returned before op2 of w1, which then wrote all the same.
			m.event(history.Invoke, "op1").At = m.Events[nthEvent("w2", history.Claimed, 1)(m)].At + 1
			m.event(history.OK, "op1").At = m.event(history.Invoke, "op1").At + 1
		}, check.Violated},
		{"a write that returned before its claim began", func(m *made) {
			m.event(history.Invoke, "op3").At = 1
			m.event(history.OK, "op3").At = 2
		}, check.Violated},
		{"a rejection before the claim began", func(m *made) { m.rejected().At = m.Events[paused(m)].At }, check.Violated},
		{"a rejection of the newest token", func(m *made) { m.rejected().Token = 1000 }, check.Violated},
		{"a rejection for another resource's claim", func(m *made) { m.rejected().Resource = "sku/2" }, check.Violated},
		{"everything is rejected", func(m *made) {
			for _, e := range slices.Clone(m.Events) {
				if e.Kind == history.Claimed {
					e.Kind, e.Reason, e.Stage, e.Current = history.Rejected, "stale", "claim", e.Token
					m.Events = append(m.Events, e)
				}
			}
		}, check.Violated},
		{"a rejection for another reason", func(m *made) { m.rejected().Reason, m.rejected().Token = "overtaken", 1000 }, check.Held},
		{"a claim that began after a higher one had returned", func(m *made) {
			after := m.Events[nthEvent("w2", history.Claimed, 1)(m)].At
			m.Events[nthEvent("w1", history.Acquired, 2)(m)].At = after + 1
			m.Events[paused(m)].At = after + 2
			m.omit(func(e history.Event) bool { return e.Kind == history.Rejected })
		}, check.Violated},
		{"a write of unknown outcome that returned before its claim", func(m *made) {
			e := m.event(history.OK, "op1")
			e.Kind, e.At = history.Unknown, m.event(history.Invoke, "op1").At
		}, check.Held},
		{"a write that returned late", func(m *made) { m.event(history.OK, "op1").At += int64(time.Hour) }, check.Held},
		{"a claim without an event", func(m *made) {
			m.omit(func(e history.Event) bool { return e.Kind == history.Claimed || e.Kind == history.Acquired })
		}, check.Held},
	})
}

// nthEvent returns the index of a process's nth event of a kind on sku/1.
func nthEvent(process string, kind history.Kind, nth int) func(m *made) int {
	return func(m *made) int {
		seen := 0
		return slices.IndexFunc(m.Events, func(e history.Event) bool {
			if e.Process == process && e.Kind == kind && e.Resource == "sku/1" {
				seen++
			}
			return seen == nth
		})
	}
}

// For a workload whose rows are unknown, the entries show what it wrote.
func TestRegister_WithoutData(t *testing.T) {
	m := good()
	m.Stock = false
	m.Observed.Effects = nil
	m.drop(func(c observe.Change) bool { return c.Table != "fence.history" })
	require.Equal(t, check.Held, found(t, &m.Record, "I5").Status)
	m.event(history.Invoke, "op3").At = 1
	m.event(history.OK, "op3").At = 2
	require.Equal(t, check.Violated, found(t, &m.Record, "I5").Status)
}

// rejected is the run's rejection.
func (m *made) rejected() *history.Event {
	return &m.Events[slices.IndexFunc(m.Events, func(e history.Event) bool { return e.Kind == history.Rejected })]
}

func TestProvenance(t *testing.T) {
	key := func(m *made, token int64) *observe.LockEvent {
		i := slices.IndexFunc(m.Observed.Locks.Events, func(k observe.LockEvent) bool { return k.Created == token && !k.Gone })
		return &m.Observed.Locks.Events[i]
	}
	of := func(m *made, seq int64) *observe.LockEvent { return key(m, m.entry("sku/1", seq).Token) }
	flags(t, "I7", []spoiled{
		{"a token of another resource's key", func(m *made) { of(m, claimAfterIt).Resource = "sku/2" }, check.Violated},
		{"a token that etcd never gave", func(m *made) { of(m, pausedClaim).Created++ }, check.Violated},
		{"another's token", func(m *made) { of(m, claimAfterIt).Holder = "w9-1" }, check.Violated},
		{"two leases for one token", func(m *made) {
			other := *of(m, claimAfterIt)
			other.Lease++
			m.Observed.Locks.Events = append(m.Observed.Locks.Events, other)
		}, check.Violated},
		{"two holders of one token", func(m *made) {
			other := *of(m, claimAfterIt)
			other.Holder = "w9-1"
			m.Observed.Locks.Events = append([]observe.LockEvent{other}, m.Observed.Locks.Events...)
		}, check.Violated},
		{"a token in the data that etcd never gave", func(m *made) { m.effect("op3").Token++ }, check.Violated},
		{"only the deletion of a key", func(m *made) { of(m, claimAfterIt).Gone = true }, check.Violated},
		{"a key that was changed later", func(m *made) {
			changed := *of(m, claimAfterIt)
			changed.Revision++
			m.Observed.Locks.Events = append(m.Observed.Locks.Events, changed)
		}, check.Held},
		{"a gap in the watch", func(m *made) { m.Observed.Locks = observe.Locks{Gap: "compacted"} }, check.Unchecked},
		{"no log", func(m *made) { m.Observed.Commits = nil }, check.Unchecked},
	})
}

func TestAgreement(t *testing.T) {
	change := func(m *made, c observe.Change) {
		m.Observed.Commits = append(m.Observed.Commits, observe.Commit{XID: 9999, Changes: []observe.Change{c}})
	}
	flags(t, "I8", []spoiled{
		{"an entry that never committed", func(m *made) {
			m.Observed.Entries = append(m.Observed.Entries, observe.Entry{Resource: "sku/1", Seq: 99, Kind: "void"})
		}, check.Violated},
		{"an entry that is gone", func(m *made) { m.Observed.Entries = m.Observed.Entries[1:] }, check.Violated},
		{"an entry with another token", func(m *made) { m.entry("sku/1", 5).Token++ }, check.Violated},
		{"an entry of another holder", func(m *made) { m.entry("sku/1", 5).Holder = "w9-1" }, check.Violated},
		{"an entry of another kind", func(m *made) { m.entry("sku/1", 5).Kind = "void" }, check.Violated},
		{"an entry of another transaction", func(m *made) { m.entry("sku/1", 5).XID++ }, check.Violated},
		{"history rewritten", func(m *made) { change(m, observe.Change{Table: "fence.history", Action: "update"}) }, check.Violated},
		{"history truncated", func(m *made) { change(m, observe.Change{Table: "fence.history", Action: "truncate"}) }, check.Violated},
		{"an entry of a resource that was never claimed", func(m *made) {
			change(m, observe.Change{Table: "fence.history", Action: "insert", Row: map[string]string{"resource": "1", "seq": "1", "kind": "w", "claim": "1"}})
		}, check.Violated},
		{"an entry without change", func(m *made) {
			m.drop(func(c observe.Change) bool { return c.Row["op"] == "op3" })
			m.without("op3")
		}, check.Violated},
		{"an entry for another operation", func(m *made) { m.entry("sku/1", 5).Ops = []string{"op1"} }, check.Violated},
		{"an entry for one of two operations", func(m *made) {
			e := *m.effect("op3")
			e.Op = "op1"
			m.Observed.Effects = append(m.Observed.Effects, e)
			row := maps.Clone(m.orderRow("op3"))
			row["op"] = e.Op
			for i := range m.Observed.Commits {
				if c := &m.Observed.Commits[i]; c.XID == e.XID {
					c.Changes = append(c.Changes, observe.Change{Table: "public.orders", Action: "insert", Row: row})
				}
			}
		}, check.Violated},
		{"an entry that names none", func(m *made) { m.entry("sku/1", 5).Ops = []string{""} }, check.Held},
		{"a token in the data that is not the entry's", func(m *made) {
			m.orderRow("op3")["token"] = "77"
			m.effect("op3").Token = 77
		}, check.Violated},
		{"a row that committed is gone", func(m *made) { m.without("op9") }, check.Violated},
		{"a row that never committed", func(m *made) { m.Observed.Effects = append(m.Observed.Effects, *m.effect("op9")) }, check.Violated},
		{"a row that was changed", func(m *made) { m.effect("op9").Quantity++ }, check.Violated},
		{"a claim that never committed", func(m *made) {
			m.record(history.Event{Kind: history.Claimed, Resource: "sku/1", Epoch: 1, Token: 999, Holder: "w1-999"})
		}, check.Violated},
		{"another's claim", func(m *made) { m.Events[nthEvent("w1", history.Claimed, 1)(m)].Holder = "w9-1" }, check.Violated},
		{"a rejection that was not recorded", func(m *made) { m.Observed.Rejections = nil }, check.Violated},
		{"a rejection that was recorded once of twice", func(m *made) {
			m.record(*m.rejected())
		}, check.Violated},
		{"a rejection that could not be recorded", func(m *made) {
			m.record(history.Event{Kind: history.Rejected, Resource: "sku/1", Reason: "overtaken", Error: "the database is unavailable"})
		}, check.Held},
		{"a rejection without an event", func(m *made) { m.Observed.Rejections[0].Count++ }, check.Held},
		{"no log", func(m *made) { m.Observed = observe.Observation{}; m.Events = nil }, check.Unchecked},
	})
}

func TestRecorded(t *testing.T) {
	flags(t, "I10", []spoiled{
		{"a change without an entry", func(m *made) {
			m.drop(func(c observe.Change) bool { return c.Table == "fence.history" && c.Row["seq"] == "5" })
		}, check.Violated},
		{"a change with another resource's entry", func(m *made) { m.orderRow("op3")["resource"] = "sku/2" }, check.Violated},
		{"stock changed by hand", func(m *made) {
			m.commit(observe.Change{Table: "public.stock", Action: "update", Row: map[string]string{"resource": "sku/1", "available": "1000"}})
		}, check.Violated},
		{"stock in a claim's transaction", func(m *made) {
			m.Observed.Commits[0].Changes = append(m.Observed.Commits[0].Changes,
				observe.Change{Table: "public.stock", Action: "update", Row: map[string]string{"resource": "sku/1"}})
		}, check.Violated},
		{"orders deleted", func(m *made) {
			m.commit(observe.Change{Table: "public.orders", Action: "delete", Row: map[string]string{"id": "1"}})
		}, check.Violated},
		{"truncated", func(m *made) { m.commit(observe.Change{Table: "public.orders", Action: "truncate"}) }, check.Violated},
		{"the tables filled", func(m *made) {
			m.commit(observe.Change{Table: "public.stock", Action: "insert", Row: map[string]string{"resource": "sku/3"}})
		}, check.Held},
		{"other tables", func(m *made) { m.commit(observe.Change{Table: "public.other", Action: "update"}) }, check.Held},
		{"no log", func(m *made) { m.Observed.Commits = nil }, check.Unchecked},
	})
}

func TestOwnership(t *testing.T) {
	flags(t, "I12", []spoiled{
		{"a lock granted while another's key is first", func(m *made) {
			first := m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/1"))
			m.release(first)
		}, check.Violated},
		{"a lock granted while the first is never released", func(m *made) {
			m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/1"))
		}, check.Violated},
		{"a waiter that waits for its neighbour alone", func(m *made) {
			first, middle := m.acquire("w1", "sku/1"), m.grant("w2", "sku/1")
			m.gone(middle)
			m.release(m.acquire("w3", "sku/1"))
			m.release(first)
		}, check.Violated},
		{"a token without a key", func(m *made) {
			m.record((&lock{process: "w1", resource: "sku/1", holder: "w1-0", token: 9999}).event(history.Acquired))
		}, check.Violated},
		{"a token of another resource's key", func(m *made) {
			l := *m.grant("w1", "sku/2")
			l.resource = "sku/1"
			m.record(l.event(history.Acquired))
		}, check.Violated},
		{"a waiter that gave up", func(m *made) {
			first, waiter := m.acquire("w1", "sku/1"), m.grant("w2", "sku/1")
			m.gone(waiter)
			m.release(first)
		}, check.Held},
		{"two leases that ended at once", func(m *made) {
			m.gone(m.acquire("w1", "sku/1"))
			m.acquire("w2", "sku/1")
		}, check.Held},
		{"a queue of another resource", func(m *made) {
			m.acquire("w1", "sku/1")
			m.release(m.acquire("w2", "sku/2"))
		}, check.Held},
		{"a gap in the watch", func(m *made) {
			m.Observed.Locks.Events, m.Observed.Locks.Gap = nil, "it broke"
		}, check.Unchecked},
	})
}

func TestVerified(t *testing.T) {
	flags(t, "I13", []spoiled{
		{"a finding", func(m *made) {
			m.Observed.Verified.Findings = []audit.Finding{{Kind: audit.FindingWrongFence, Resource: "sku/1", Text: "wrong"}}
		}, check.Violated},
		{"a rejection by a claim that isn't there", func(m *made) {
			m.Observed.Verified.Unexplained = []audit.Finding{{Kind: audit.FindingUnexplainedRejection, Resource: "sku/1", Text: "unexplained"}}
		}, check.Violated},
		{"no verification", func(m *made) { m.Observed.Verified = nil }, check.Unchecked},
	})
}
