package check_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// made is a run of Fencekit that a test makes: each method is one thing that happens,
// and adds to the Record what it would leave there.
type made struct {
	check.Record
	now       int64
	revision  int64
	orders    int64
	ops       int
	fences    map[string]*fenceRow
	available map[string]int
	by        map[string]string // processes of operations
}

// fenceRow is the fence of a resource.
type fenceRow struct {
	number, seq, token int64
	holder             string
}

// lock is a grant that a process has.
type lock struct {
	process, resource, holder string
	token, seq, claim, lease  int64 // claim is the position of its claim
}

func (l lock) event(kind history.Kind) history.Event {
	return history.Event{Kind: kind, Process: l.process, Resource: l.resource, Epoch: 1, Token: l.token, Holder: l.holder}
}

// newMade begins a run with an initial stock of each resource.
func newMade(initial int, resources ...string) *made {
	m := &made{fences: map[string]*fenceRow{}, available: map[string]int{}, by: map[string]string{}}
	m.Record = check.Record{Fenced: true, Stock: true, Progress: time.Second}
	m.Observed.Verified = &audit.Report{}
	for i, r := range resources {
		m.fences[r] = &fenceRow{number: int64(i + 1000)}
		m.available[r] = initial
		m.Observed.Stocks = append(m.Observed.Stocks, observe.Stock{Resource: r, Initial: initial, Available: initial})
	}
	m.phase(history.PhaseLoad)
	return m
}

func (m *made) record(e history.Event) {
	m.now += int64(time.Millisecond)
	e.At = m.now
	m.Events = append(m.Events, e)
}

func (m *made) phase(name string) {
	m.record(history.Event{Kind: history.Phase, Process: history.Runner, Name: name})
}

func (m *made) invoke(process, action string, resources ...string) (op string) {
	m.ops++
	op = fmt.Sprintf("op%d", m.ops)
	m.by[op] = process
	m.record(history.Event{Kind: history.Invoke, Process: process, Op: op, Action: action, Resources: resources})
	return op
}

func (m *made) end(op string, kind history.Kind, class string) {
	m.record(history.Event{Kind: kind, Process: m.by[op], Op: op, Class: class})
}

func (m *made) ok(op string) { m.end(op, history.OK, "") }

// grant creates a lock key, without an event of its process.
func (m *made) grant(process, resource string) *lock {
	m.revision += 3
	l := &lock{process: process, resource: resource, holder: fmt.Sprintf("%s-%d", process, m.revision), token: m.revision, lease: 7000 + m.revision}
	m.Observed.Locks.Events = append(m.Observed.Locks.Events, observe.LockEvent{
		At: m.now, Resource: resource, Revision: l.token, Created: l.token, Lease: l.lease, Holder: l.holder,
	})
	return l
}

func (m *made) acquire(process, resource string) *lock {
	l := m.grant(process, resource)
	m.record(l.event(history.Acquired))
	return l
}

// gone deletes a lock key.
func (m *made) gone(l *lock) {
	m.revision++
	m.Observed.Locks.Events = append(m.Observed.Locks.Events, observe.LockEvent{
		At: m.now, Resource: l.resource, Revision: m.revision, Created: l.token, Gone: true,
	})
}

func (m *made) release(l *lock) {
	m.gone(l)
	m.record(l.event(history.Released))
}

// commit is a transaction in the write-ahead log.
func (m *made) commit(changes ...observe.Change) uint64 {
	xid := uint64(800 + 3*len(m.Observed.Commits))
	m.Observed.Commits = append(m.Observed.Commits, observe.Commit{XID: xid, Changes: changes})
	return xid
}

// move moves the fence of a grant, and returns the change and the entry; the caller sets the
// entry's transaction id.
func (m *made) move(l *lock, kind string, ops ...string) (change observe.Change, entry *observe.Entry) {
	f := m.fences[l.resource]
	f.seq, f.token, f.holder = f.seq+1, l.token, l.holder
	l.seq = f.seq
	if kind == "claim" {
		l.claim = f.seq
	}
	row := map[string]string{
		"resource": strconv.FormatInt(f.number, 10), "seq": strconv.FormatInt(f.seq, 10), "kind": kind[:1], "claim": strconv.FormatInt(l.claim, 10),
	}
	if kind == "claim" {
		row["epoch"], row["token"], row["holder"], row["name"] = "1", strconv.FormatInt(l.token, 10), l.holder, l.resource
	}
	if kind == "write" {
		records := []map[string]string{}
		for _, op := range ops {
			records = append(records, map[string]string{"id": op})
		}
		text, _ := json.Marshal(records)
		row["ops"] = string(text)
	}
	m.Observed.Entries = append(m.Observed.Entries, observe.Entry{
		Resource: l.resource, Seq: f.seq, Kind: kind, Epoch: 1, Token: l.token, Holder: l.holder, Ops: ops,
	})
	return observe.Change{Table: "fence.history", Action: "insert", Row: row}, &m.Observed.Entries[len(m.Observed.Entries)-1]
}

// claimed commits a claim, without an event of its process.
func (m *made) claimed(l *lock) {
	change, entry := m.move(l, "claim")
	entry.XID = m.commit(change)
}

func (m *made) claim(l *lock) {
	m.claimed(l)
	m.record(l.event(history.Claimed))
}

// void takes the position of a transaction in doubt.
func (m *made) void(l *lock) {
	change, entry := m.move(l, "void")
	entry.XID = m.commit(change)
}

// write commits an operation that sells one of each resource. The entries name it unless it
// is a hold's.
func (m *made) write(op string, named bool, locks ...*lock) {
	m.writeSeen(op, named, nil, locks...)
}

// writeSeen is write for an operation that has read the stock before.
func (m *made) writeSeen(op string, named bool, seen []int, locks ...*lock) {
	effects, entries := len(m.Observed.Effects), len(m.Observed.Entries)
	var changes []observe.Change
	for i, l := range locks {
		before := m.available[l.resource]
		if seen != nil {
			before = seen[i]
		}
		changes = append(changes, m.sell(op, before, l)...)
	}
	var ops []string
	if named {
		ops = []string{op}
	}
	for _, l := range locks {
		change, _ := m.move(l, "write", ops...)
		changes = append(changes, change)
	}
	xid := m.commit(changes...)
	for i := range locks {
		m.Observed.Effects[effects+i].XID, m.Observed.Entries[entries+i].XID = xid, xid
	}
}

// sell writes what an operation decided on the stock that it has seen.
func (m *made) sell(op string, seen int, l *lock) []observe.Change {
	m.orders++
	m.available[l.resource] = seen - 1
	for i := range m.Observed.Stocks {
		if s := &m.Observed.Stocks[i]; s.Resource == l.resource {
			s.Available = seen - 1
		}
	}
	m.Observed.Effects = append(m.Observed.Effects, observe.Effect{
		Order: m.orders, Op: op, Resource: l.resource, Token: l.token, Quantity: 1, Seen: seen,
	})
	return []observe.Change{
		{Table: "public.stock", Action: "update", Row: map[string]string{
			"resource": l.resource, "initial": "10", "available": strconv.Itoa(seen - 1),
		}},
		{Table: "public.orders", Action: "insert", Row: map[string]string{
			"id": strconv.FormatInt(m.orders, 10), "op": op, "resource": l.resource, "quantity": "1",
			"seen": strconv.Itoa(seen), "token": strconv.FormatInt(l.token, 10), "process": l.process,
		}},
	}
}

// reject rejects a grant as stale, and records it.
func (m *made) reject(l *lock, stage string) { m.record(m.rejection(l, stage)) }

// rejection is a recorded rejection, without an event of its process.
func (m *made) rejection(l *lock, stage string) history.Event {
	e := l.event(history.Rejected)
	e.Reason, e.Stage, e.Current = "stale", stage, m.fences[l.resource].token
	m.Observed.Rejections = append(m.Observed.Rejections, observe.Rejection{
		Resource: l.resource, Reason: "stale", Stage: stage, Token: l.token, Holder: l.holder, Current: e.Current, Count: 1,
	})
	return e
}

// lose ends a lease; its holder notices.
func (m *made) lose(l *lock) {
	e := l.event(history.Lost)
	e.Reason = "deadline passed without a renewal"
	m.record(e)
}

// do is a whole operation without faults.
func (m *made) do(process, resource string) (op string) {
	op = m.invoke(process, "do", resource)
	l := m.acquire(process, resource)
	m.claim(l)
	m.write(op, true, l)
	m.ok(op)
	m.release(l)
	return op
}

// good is a good run with everything that checks look at.
func good() *made {
	m := newMade(20, "sku/1", "sku/2")
	m.do("w1", "sku/1") // op1

	// w1 is paused before its seal; w2 takes over; w1 is rejected.
	op2 := m.invoke("w1", "do", "sku/1")
	paused := m.acquire("w1", "sku/1")
	m.claim(paused)
	m.record(history.Event{Kind: history.Reached, Process: "w1", Point: "seal", Name: history.ThenPause})
	m.record(history.Event{Kind: history.Injected, Process: "w1", Name: "pause w1"})
	m.gone(paused)
	m.do("w2", "sku/1") // op3
	m.record(history.Event{Kind: history.Reverted, Process: "w1", Name: "pause w1"})
	m.lose(paused)
	m.reject(paused, "seal")
	m.end(op2, history.Fail, "stale token")

	// An outcome that was unknown, and was applied.
	op4 := m.invoke("w2", "do", "sku/2")
	l := m.acquire("w2", "sku/2")
	m.claim(l)
	m.write(op4, true, l)
	m.end(op4, history.Unknown, "unknown outcome")
	m.record(history.Event{Kind: history.Answer, Process: "w2", Op: op4, Applied: true})

	// One that was not, and one that was resolved by a void.
	op5 := m.invoke("w2", "do", "sku/2")
	m.end(op5, history.Unknown, "unknown outcome")
	m.void(l)
	m.record(history.Event{Kind: history.Answer, Process: "w2", Op: op5, Applied: false})
	m.release(l)

	// Several resources, a hold whose reading moves the fence as well, and a process
	// that is killed in a claim and another after COMMIT.
	op6 := m.invoke("w1", "all", "sku/1", "sku/2")
	l1, l2 := m.acquire("w1", "sku/1"), m.acquire("w1", "sku/2")
	m.claim(l1)
	m.claim(l2)
	m.write(op6, true, l1, l2)
	m.ok(op6)
	m.release(l1)
	m.release(l2)
	op7 := m.invoke("w2", "hold", "sku/2")
	l = m.acquire("w2", "sku/2")
	m.claim(l)
	change, entry := m.move(l, "write")
	entry.XID = m.commit(change)
	m.write(op7, false, l)
	m.ok(op7)
	m.release(l)
	m.invoke("w3", "do", "sku/1") // op8
	l = m.acquire("w3", "sku/1")
	m.claimed(l)
	m.record(history.Event{Kind: history.Ends, Process: "w3", Error: "killed"})
	m.gone(l)
	op9 := m.invoke("w4", "do", "sku/2")
	l = m.acquire("w4", "sku/2")
	m.claim(l)
	m.write(op9, true, l)
	m.record(history.Event{Kind: history.Ends, Process: "w4", Error: "killed"})
	m.gone(l)

	m.phase(history.PhaseFaultsOver)
	m.do("w1", "sku/1") // op10
	m.phase(history.PhaseFinal)
	m.do("w1", "sku/1") // op11
	m.do("w2", "sku/2") // op12
	m.phase(history.PhaseEnd)
	m.Requires = []string{check.HitRejected + "seal", check.HitFault + "pause", check.HitPaused + "seal"}
	return m
}
