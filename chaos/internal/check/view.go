package check

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// view is a Record with indexes that several checks use.
type view struct {
	*Record
	operations []*operation // in the order of their invocations
	byID       map[string]*operation
	broken     []string                    // why the history of operations is invalid
	effects    map[string][]observe.Effect // by resource, in order
	wal        *wal
	acquired   map[grantKey]int64 // time of the first event
	claimed    map[grantKey]int64
}

func newView(r *Record) *view {
	v := &view{
		Record: r, byID: map[string]*operation{}, effects: map[string][]observe.Effect{},
		wal: readWAL(r.Observed.Commits), acquired: map[grantKey]int64{}, claimed: map[grantKey]int64{},
	}
	v.readOperations()
	v.readGrants()
	for _, e := range r.Observed.Effects {
		v.effects[e.Resource] = append(v.effects[e.Resource], e)
		if op := v.byID[e.Op]; op != nil {
			op.effects[e.Resource]++
		}
	}
	for _, list := range v.effects {
		slices.SortStableFunc(list, func(a, b observe.Effect) int { return int(a.Order - b.Order) })
	}
	return v
}

// readGrants notes the times of the first events of each grant.
func (v *view) readGrants() {
	first := map[history.Kind]map[grantKey]int64{history.Acquired: v.acquired, history.Claimed: v.claimed}
	for _, e := range v.Events {
		times := first[e.Kind]
		if times == nil {
			continue
		}
		if _, ok := times[keyOf(e)]; !ok {
			times[keyOf(e)] = e.At
		}
	}
}

// used returns the resources of all operations, sorted.
func (v *view) used() []string {
	used := map[string]bool{}
	for _, op := range v.operations {
		for _, r := range op.resources {
			used[r] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// phase returns when the run entered a phase, and whether it did.
func (v *view) phase(name string) (at int64, ok bool) {
	for _, e := range v.Events {
		if e.Kind == history.Phase && e.Name == name {
			return e.At, true
		}
	}
	return 0, false
}

// operation is what the history says of one operation, and its effects.
type operation struct {
	id, process, action string
	resources           []string
	invoked             int64
	end                 history.Kind    // ok, fail or unknown; empty if it was cut off
	ended               int64           // when it ended or was cut off; 0 if it is open still
	class, failure      string          // of its error, and the error itself
	answers             []history.Event // about an unknown outcome, in order
	effects             map[string]int  // rows in the data, by resource
}

// applied reports whether the data has an effect of it.
func (op *operation) applied() bool { return len(op.effects) > 0 }

// outcome is how it ended, or was resolved later: ok, fail or unknown.
func (op *operation) outcome() history.Kind {
	switch {
	case op.end == history.OK || op.end == history.Fail:
		return op.end
	case len(op.answers) == 0:
		return history.Unknown
	case op.answers[0].Applied:
		return history.OK
	}
	return history.Fail
}

// String names it in counterexamples.
func (op *operation) String() string {
	return fmt.Sprintf("operation %s (%s on %s)", op.id, op.action, op.process)
}

// readOperations puts together the events of each operation.
func (v *view) readOperations() {
	for _, e := range v.Events {
		op := v.byID[e.Op]
		switch e.Kind {
		case history.Ends:
			v.cutOff(e.Process, e.At)
		case history.Invoke:
			if op != nil {
				v.broken = append(v.broken, fmt.Sprintf("%s was invoked a second time, by %s", op, e.Process))
				continue
			}
			op = &operation{id: e.Op, process: e.Process, action: e.Action, resources: e.Resources, invoked: e.At, effects: map[string]int{}}
			v.byID[e.Op] = op
			v.operations = append(v.operations, op)
		case history.OK, history.Fail, history.Unknown:
			if op == nil || op.end != "" {
				v.broken = append(v.broken, fmt.Sprintf("operation %s ended (%s) without being open", e.Op, e.Kind))
				continue
			}
			op.end, op.ended, op.class, op.failure = e.Kind, e.At, e.Class, e.Error
		case history.Answer:
			if op != nil {
				op.answers = append(op.answers, e)
			}
		}
	}
}

// cutOff ends what a process had open when it ended.
func (v *view) cutOff(process string, at int64) {
	for _, op := range v.operations {
		if op.process == process && op.ended == 0 {
			op.ended = at
		}
	}
}

// Tables in the write-ahead log.
const (
	tableHistory = "fence.history"
	tableStock   = "public.stock"
	tableOrders  = "public.orders"
)

// wal is what the write-ahead log shows of fences and orders.
type wal struct {
	moves      []*move
	byResource map[string][]*move // in the order in which they took effect
	orders     []order
	strange    []string // changes that are never right
}

// move is a move of a fence: an entry of Fencekit's history as it was committed,
// without its operations.
type move struct {
	observe.Entry
	commit int // number of its transaction
}

// order is a row that an operation inserted.
type order struct {
	observe.Effect
	commit int // number of its transaction
}

func readWAL(commits []observe.Commit) *wal {
	w := &wal{byResource: map[string][]*move{}}
	claims := map[[2]string]map[string]string{} // rows of claims by resource and position, as other entries name them
	for n, c := range commits {
		for _, change := range c.Changes {
			switch {
			case change.Table == tableHistory && change.Action == "insert":
				if change.Row["kind"] == "c" {
					claims[[2]string{change.Row["resource"], change.Row["seq"]}] = change.Row
				}
				claim := claims[[2]string{change.Row["resource"], change.Row["claim"]}]
				m := &move{Entry: entryIn(change.Row, claim, c.XID), commit: n}
				w.moves = append(w.moves, m)
				w.byResource[m.Resource] = append(w.byResource[m.Resource], m)
			case change.Table == tableHistory:
				w.strange = append(w.strange, fmt.Sprintf("transaction %d: %s of the history, which is only appended to", c.XID, change.Action))
			case change.Table == tableOrders && change.Action == "insert":
				w.orders = append(w.orders, order{Effect: effectIn(change.Row, c.XID), commit: n})
			}
		}
	}
	return w
}

// number parses a number; it returns 0, which is never valid, for anything else.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// kinds are those of entries, as the history abbreviates them.
var kinds = map[string]string{"c": "claim", "w": "write", "v": "void"}

// entryIn reads an entry from its row and the row of the claim that it names.
func entryIn(row, claim map[string]string, xid uint64) observe.Entry {
	return observe.Entry{
		Resource: claim["name"], Seq: number(row["seq"]), Kind: kinds[row["kind"]],
		Epoch: number(claim["epoch"]), Token: number(claim["token"]), Holder: claim["holder"], XID: xid,
	}
}

func effectIn(row map[string]string, xid uint64) observe.Effect {
	return observe.Effect{
		Order: number(row["id"]), Op: row["op"], Resource: row["resource"], Token: number(row["token"]),
		Quantity: int(number(row["quantity"])), Seen: int(number(row["seen"])), XID: xid,
	}
}

// wrote is a move by which an operation took effect.
type wrote struct {
	op *operation
	*move
}

// wrote returns the moves of operations: by the rows of the same transaction or, if only the
// workload knows its rows, by the ids that Fencekit recorded.
func (v *view) wrote() (found []wrote) {
	if v.Stock {
		in := v.wal.writes()
		for _, o := range v.wal.orders {
			if op, m := v.byID[o.Op], in[written{o.commit, o.Resource}]; op != nil && m != nil {
				found = append(found, wrote{op, m})
			}
		}
		return found
	}
	at := map[position]*move{}
	for _, m := range v.wal.moves {
		at[position{m.Resource, m.Seq}] = m
	}
	for _, e := range v.Observed.Entries {
		for _, id := range e.Ops {
			if op, m := v.byID[id], at[position{e.Resource, e.Seq}]; op != nil && m != nil {
				found = append(found, wrote{op, m})
			}
		}
	}
	return found
}

// written is a resource in a transaction.
type written struct {
	commit   int
	resource string
}

// writes returns the moves of writes.
func (w *wal) writes() map[written]*move {
	in := map[written]*move{}
	for _, m := range w.moves {
		if m.Kind == "write" {
			in[written{m.commit, m.Resource}] = m
		}
	}
	return in
}

// position is a position of a resource's fence.
type position struct {
	resource string
	seq      int64
}

// grant is a grant as far as grants of one resource are ordered by it.
type grant struct{ epoch, token int64 }

func (g grant) compare(other grant) int {
	return cmp.Or(cmp.Compare(g.epoch, other.epoch), cmp.Compare(g.token, other.token))
}

func (g grant) String() string {
	if g.epoch > 1 {
		return fmt.Sprintf("token %d of epoch %d", g.token, g.epoch)
	}
	return fmt.Sprintf("token %d", g.token)
}

func grantOf(e observe.Entry) grant { return grant{e.Epoch, e.Token} }

// grantKey is a grant of a resource.
type grantKey struct {
	resource string
	grant
}

func keyOf(e history.Event) grantKey { return grantKey{e.Resource, grant{e.Epoch, e.Token}} }
