package check

import (
	"encoding/json"
	"fmt"
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

// made is a run of Fencekit that a test makes: each method is one thing that happens,
// and adds what it would leave to the history and the observation.
type made struct {
	Run
	events    []history.Event
	observed  observe.Observation
	now       int64
	revision  int64
	ops       int
	fences    map[string]*fenceRow
	available map[string]int
	by        map[string]string // processes of operations
}

// fenceRow is the fence of a resource.
type fenceRow struct{ number, seq, token int64 }

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
	m.Run = Run{Group: Fenced, Faults: true, Stock: true, Progress: time.Second}
	m.observed.Verified = &audit.Report{}
	for i, r := range resources {
		m.fences[r] = &fenceRow{number: int64(i + 1000)}
		m.available[r] = initial
		m.observed.Stocks = append(m.observed.Stocks, observe.Stock{Resource: r, Initial: initial, Available: initial})
	}
	m.phase(history.PhaseLoad)
	return m
}

// judge judges the run, and returns the finding of each property.
func (m *made) judge() map[string]Finding {
	m.observed.Read()
	if v := m.observed.Verified; v != nil && v.Entries == 0 {
		v.Entries = int64(len(m.observed.Entries))
	}
	m.Run.Judge(m.events, m.observed)
	found := map[string]Finding{}
	for _, f := range m.Findings {
		found[f.Property] = f
	}
	return found
}

func (m *made) record(e history.Event) {
	m.now += int64(time.Millisecond)
	e.At = m.now
	m.events = append(m.events, e)
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

func (m *made) end(op string, kind history.Kind) {
	m.record(history.Event{Kind: kind, Process: m.by[op], Op: op})
}

// grant creates a lock key, without an event of its process.
func (m *made) grant(process, resource string) *lock {
	m.revision += 3
	l := &lock{process: process, resource: resource, holder: fmt.Sprintf("%s-%d", process, m.revision), token: m.revision, lease: 7000 + m.revision}
	m.observed.Locks.Events = append(m.observed.Locks.Events, observe.LockEvent{
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
	m.observed.Locks.Events = append(m.observed.Locks.Events, observe.LockEvent{
		At: m.now, Resource: l.resource, Revision: m.revision, Created: l.token, Gone: true,
	})
}

func (m *made) release(l *lock) {
	m.gone(l)
	m.record(l.event(history.Released))
}

// commit is a transaction in the write-ahead log.
func (m *made) commit(changes ...observe.Change) {
	m.observed.Commits = append(m.observed.Commits, observe.Commit{XID: uint64(800 + 3*len(m.observed.Commits)), Changes: changes})
}

func digits(n int64) string { return strconv.FormatInt(n, 10) }

// move moves the fence of a grant.
func (m *made) move(l *lock, kind string, ops ...string) observe.Change {
	f := m.fences[l.resource]
	f.seq, f.token = f.seq+1, l.token
	l.seq = f.seq
	if kind == "c" {
		l.claim = f.seq
	}
	row := map[string]string{"resource": digits(f.number), "seq": digits(f.seq), "kind": kind, "claim": digits(l.claim)}
	switch kind {
	case "c":
		row["epoch"], row["token"], row["holder"], row["name"] = "1", digits(l.token), l.holder, l.resource
	case "w":
		var records []map[string]string
		for _, op := range ops {
			records = append(records, map[string]string{"id": op})
		}
		text, _ := json.Marshal(records)
		row["ops"] = string(text)
	}
	return observe.Change{Table: observe.TableHistory, Action: "INSERT", Row: row}
}

// claim commits a claim, with an event of its process.
func (m *made) claim(l *lock) {
	m.commit(m.move(l, "c"))
	m.record(l.event(history.Claimed))
}

// write commits an operation that sells one of each resource, of which it has read the stock. The
// entries name it unless it is a hold's.
func (m *made) write(op string, named bool, seen []int, locks ...*lock) {
	var changes []observe.Change
	var ops []string
	if named {
		ops = []string{op}
	}
	for i, l := range locks {
		changes = append(changes, m.sell(op, seen[i], l)...)
	}
	for _, l := range locks {
		changes = append(changes, m.move(l, "w", ops...))
	}
	m.commit(changes...)
}

// sell writes what an operation decided on the stock that it has seen.
func (m *made) sell(op string, seen int, l *lock) []observe.Change {
	m.available[l.resource] = seen - 1
	for i := range m.observed.Stocks {
		if s := &m.observed.Stocks[i]; s.Resource == l.resource {
			s.Available = seen - 1
		}
	}
	return []observe.Change{
		{Table: observe.TableStock, Action: "UPDATE", Row: map[string]string{"resource": l.resource, "available": digits(int64(seen - 1))}},
		{Table: observe.TableOrders, Action: "INSERT", Row: map[string]string{
			"op": op, "resource": l.resource, "quantity": "1", "seen": digits(int64(seen)), "token": digits(l.token),
		}},
	}
}

// rejection is a recorded rejection, without an event of its process.
func (m *made) rejection(l *lock, stage string) history.Event {
	e := l.event(history.Rejected)
	e.Reason, e.Stage, e.Current = "stale", stage, m.fences[l.resource].token
	m.observed.Rejections = append(m.observed.Rejections, observe.Rejection{
		Resource: l.resource, Reason: "stale", Stage: stage, Token: l.token, Holder: l.holder, Current: e.Current, Count: 1,
	})
	return e
}

// do is a whole operation without faults.
func (m *made) do(process, resource string) (op string) {
	op = m.invoke(process, "do", resource)
	l := m.acquire(process, resource)
	m.claim(l)
	m.write(op, true, []int{m.available[resource]}, l)
	m.end(op, history.OK)
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
	m.record(paused.event(history.Lost))
	m.record(m.rejection(paused, "seal"))
	m.end(op2, history.Fail)

	// An outcome that was unknown, and was applied.
	op4 := m.invoke("w2", "do", "sku/2")
	l := m.acquire("w2", "sku/2")
	m.claim(l)
	m.write(op4, true, []int{m.available["sku/2"]}, l)
	m.end(op4, history.Unknown)
	m.record(history.Event{Kind: history.Answer, Process: "w2", Op: op4, Applied: true})

	// One that was not, and one that was resolved by a void.
	op5 := m.invoke("w2", "do", "sku/2")
	m.end(op5, history.Unknown)
	m.commit(m.move(l, "v"))
	m.record(history.Event{Kind: history.Answer, Process: "w2", Op: op5})
	m.release(l)

	// Several resources, a hold whose reading moves the fence as well, and a process
	// that is killed in a claim and another after COMMIT.
	op6 := m.invoke("w1", "all", "sku/1", "sku/2")
	l1, l2 := m.acquire("w1", "sku/1"), m.acquire("w1", "sku/2")
	m.claim(l1)
	m.claim(l2)
	m.write(op6, true, []int{m.available["sku/1"], m.available["sku/2"]}, l1, l2)
	m.end(op6, history.OK)
	m.release(l1)
	m.release(l2)
	op7 := m.invoke("w2", "hold", "sku/2")
	l = m.acquire("w2", "sku/2")
	m.claim(l)
	m.commit(m.move(l, "w"))
	m.write(op7, false, []int{m.available["sku/2"]}, l)
	m.end(op7, history.OK)
	m.release(l)
	m.invoke("w3", "do", "sku/1") // op8
	l = m.acquire("w3", "sku/1")
	m.commit(m.move(l, "c"))
	m.record(history.Event{Kind: history.Ends, Process: "w3", Error: "killed"})
	m.gone(l)
	op9 := m.invoke("w4", "do", "sku/2")
	l = m.acquire("w4", "sku/2")
	m.claim(l)
	m.write(op9, true, []int{m.available["sku/2"]}, l)
	m.record(history.Event{Kind: history.Ends, Process: "w4", Error: "killed"})
	m.gone(l)

	m.phase(history.PhaseFaultsOver)
	m.do("w1", "sku/1") // op10
	m.phase(history.PhaseFinal)
	m.do("w1", "sku/1") // op11
	m.do("w2", "sku/2") // op12
	m.phase(history.PhaseEnd)
	m.Requires = []string{HitRejected + "seal", HitFault + "pause", HitPaused + "seal"}
	return m
}

// The positions of sku/1 in a good run: claim and write of op1 (1, 2), claim of the
// paused w1 (3), claim and write of op3 (4, 5), of op6 (6, 7), and the claim of the
// killed w3 (8).
const pausedClaim, claimAfterIt, writeAfterIt = 3, 4, 5

// entry returns the row of the entry at a position.
func (m *made) entry(resource string, seq int64) map[string]string {
	return m.row(observe.TableHistory, func(row map[string]string) bool {
		return row["resource"] == digits(m.fences[resource].number) && row["seq"] == digits(seq)
	})
}

// order returns the first row of an operation.
func (m *made) order(op string) map[string]string {
	return m.row(observe.TableOrders, func(row map[string]string) bool { return row["op"] == op })
}

func (m *made) row(table string, is func(map[string]string) bool) map[string]string {
	for _, c := range m.observed.Commits {
		for _, change := range c.Changes {
			if change.Table == table && is(change.Row) {
				return change.Row
			}
		}
	}
	return nil
}

// again adds an order like an operation's, with something changed.
func (m *made) again(op string, changed ...string) {
	row := maps.Clone(m.order(op))
	for i := 0; i < len(changed); i += 2 {
		row[changed[i]] = changed[i+1]
	}
	for i, c := range m.observed.Commits {
		if slices.ContainsFunc(c.Changes, func(other observe.Change) bool { return other.Row["op"] == op }) {
			m.observed.Commits[i].Changes = append(c.Changes, observe.Change{Table: observe.TableOrders, Action: "INSERT", Row: row})
		}
	}
}

// drop removes changes from the write-ahead log.
func (m *made) drop(gone func(c observe.Change) bool) {
	for i := range m.observed.Commits {
		m.observed.Commits[i].Changes = slices.DeleteFunc(m.observed.Commits[i].Changes, gone)
	}
}

// without removes an operation's orders.
func (m *made) without(op string) { m.drop(func(c observe.Change) bool { return c.Row["op"] == op }) }

// event returns the first event of a kind of an operation.
func (m *made) event(kind history.Kind, op string) *history.Event {
	return &m.events[slices.IndexFunc(m.events, func(e history.Event) bool { return e.Kind == kind && e.Op == op })]
}

// nth returns a process's nth event of a kind on sku/1.
func (m *made) nth(process string, kind history.Kind, nth int) *history.Event {
	for i := range m.events {
		if e := &m.events[i]; e.Process == process && e.Kind == kind && e.Resource == "sku/1" {
			if nth--; nth == 0 {
				return e
			}
		}
	}
	return nil
}

// rejected is the run's rejection.
func (m *made) rejected() *history.Event { return m.nth("w1", history.Rejected, 1) }

// omit removes events from the history.
func (m *made) omit(gone func(e history.Event) bool) { m.events = slices.DeleteFunc(m.events, gone) }

// spoiled is a good run with one thing changed.
type spoiled struct {
	name  string
	spoil func(m *made)
	want  Status
}

// flags checks that each spoiled run has the status that it should have, and an example if violated.
func flags(t *testing.T, property string, table []spoiled) {
	for _, s := range table {
		t.Run(s.name, func(t *testing.T) {
			m := good()
			s.spoil(m)
			f := m.judge()[property]
			require.Equal(t, s.want, f.Status, "%+v", f)
			require.NotEmpty(t, f.Detail)
			require.Equal(t, s.want == Flagged, f.Status == Flagged && len(f.Examples) > 0)
		})
	}
}
