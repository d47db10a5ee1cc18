package check

import (
	"fmt"
	"strconv"

	"github.com/fencekit/fencekit/chaos/internal/observe"
)

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
	strange    []string            // changes that are never right
	changed    map[position]string // entries that were changed after they were made, and how that is never right, unless a fault tampers
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
	w := &wal{byResource: map[string][]*move{}, changed: map[position]string{}}
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
			case change.Table == tableHistory && change.Action == "update":
				claim := claims[[2]string{change.Row["resource"], change.Row["claim"]}]
				w.changed[position{claim["name"], number(change.Row["seq"])}] = appendOnly(c.XID, change.Action)
			case change.Table == tableHistory:
				w.strange = append(w.strange, appendOnly(c.XID, change.Action))
			case change.Table == tableOrders && change.Action == "insert":
				w.orders = append(w.orders, order{Effect: effectIn(change.Row, c.XID), commit: n})
			}
		}
	}
	return w
}

func appendOnly(xid uint64, action string) string {
	return fmt.Sprintf("transaction %d: %s of the history, which is only appended to", xid, action)
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
