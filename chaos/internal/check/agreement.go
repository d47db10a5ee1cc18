package check

import (
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// agreement checks I8: the write-ahead log, Fencekit's history, the data and the
// workers' events agree.
func agreement(v *view, t *tally) {
	t.look("%d moves in the write-ahead log, %d entries, %d orders, %d kinds of rejections",
		len(v.wal.moves), len(v.Observed.Entries), len(v.wal.orders), len(v.Observed.Rejections))
	if len(v.wal.moves) == 0 {
		t.lack("the write-ahead log shows no entry")
	}
	for _, s := range v.wal.strange {
		t.violate("%s", s)
	}
	v.compareEntries(t)
	if v.Stock {
		v.compareOrders(t)
		v.compareOps(t)
	}
	v.compareClaims(t)
	v.compareRejections(t)
}

// compareEntries compares Fencekit's history with the write-ahead log.
func (v *view) compareEntries(t *tally) {
	type entry struct {
		resource, kind, holder string
		seq, epoch, token      int64
		xid                    uint64
	}
	of := func(e observe.Entry) entry {
		return entry{e.Resource, e.Kind, e.Holder, e.Seq, e.Epoch, e.Token, e.XID}
	}
	d := newDifference[entry]()
	for _, e := range v.Observed.Entries {
		d.add(of(e), 1)
	}
	for _, m := range v.wal.moves {
		d.add(of(m.Entry), -1)
	}
	d.each(func(e entry, n int) {
		t.violate("%s: the %s of %s at position %d (token %d, transaction %d) is %s", e.resource, e.kind, e.holder, e.seq, e.token, e.xid, only(n > 0, "the history"))
	})
}

// compareOrders compares the orders in the data with the write-ahead log.
func (v *view) compareOrders(t *tally) {
	type row struct {
		op, resource   string
		token          int64
		quantity, seen int
	}
	of := func(e observe.Effect) row { return row{e.Op, e.Resource, e.Token, e.Quantity, e.Seen} }
	d := newDifference[row]()
	for _, e := range v.Observed.Effects {
		d.add(of(e), 1)
	}
	for _, o := range v.wal.orders {
		d.add(of(o.Effect), -1)
	}
	d.each(func(r row, n int) {
		t.violate("%s: operation %s (quantity %d, token %d) is %s", r.resource, r.op, r.quantity, r.token, only(n > 0, "the data"))
	})
}

func only(more bool, where string) string {
	if more {
		return "in " + where + " and not in the write-ahead log"
	}
	return "in the write-ahead log and not in " + where
}

// compareOps compares the operations that entries name with the rows that were
// written in the same transactions: an operation is recorded if and only if it
// changed data, under the token that it wrote. An entry may name none, as those of
// a Hold do.
func (v *view) compareOps(t *tally) {
	wrote := map[position][]order{}
	writes := v.wal.writes()
	for _, o := range v.wal.orders {
		if m := writes[written{o.commit, o.Resource}]; m != nil { // I10 checks that there is one
			wrote[position{m.Resource, m.Seq}] = append(wrote[position{m.Resource, m.Seq}], o)
		}
	}
	for _, e := range v.Observed.Entries {
		unseen := slices.DeleteFunc(slices.Clone(e.Ops), func(op string) bool { return op == "" })
		names := len(unseen) > 0
		for _, o := range wrote[position{e.Resource, e.Seq}] {
			if e.Token != o.Token {
				t.violate("%s: operation %s wrote with token %d, its entry at position %d has token %d", o.Resource, o.Op, o.Token, e.Seq, e.Token)
			}
			if names && !slices.Contains(e.Ops, o.Op) {
				t.violate("%s: operation %s wrote, and its entry at position %d names %v", o.Resource, o.Op, e.Seq, e.Ops)
			}
			unseen = slices.DeleteFunc(unseen, func(op string) bool { return op == o.Op })
		}
		for _, op := range unseen {
			t.violate("%s: the entry at position %d names operation %s, which changed nothing there", e.Resource, e.Seq, op)
		}
	}
}

// compareClaims looks for the claims that workers recorded.
func (v *view) compareClaims(t *tally) {
	type claimer struct {
		grantKey
		holder string
	}
	made := map[claimer]bool{}
	for _, m := range v.wal.moves {
		if m.Kind == "claim" {
			made[claimer{grantKey{m.Resource, grantOf(m.Entry)}, m.Holder}] = true
		}
	}
	for _, e := range v.Events {
		if e.Kind == history.Claimed && !made[claimer{keyOf(e), e.Holder}] {
			t.violate("%s: %s recorded a claim with %v as %s, which is not in the write-ahead log", e.Resource, e.Process, keyOf(e).grant, e.Holder)
		}
	}
}

// compareRejections looks for the rejections that workers saw. Fencekit may have
// recorded more: a worker may have been killed before it recorded its own.
func (v *view) compareRejections(t *tally) {
	type rejection struct {
		resource, reason, stage, holder string
		token, current                  int64
	}
	unrecorded := newDifference[rejection]()
	for _, e := range v.Events {
		if e.Kind == history.Rejected && e.Error == "" {
			unrecorded.add(rejection{e.Resource, e.Reason, e.Stage, e.Holder, e.Token, e.Current}, 1)
		}
	}
	for _, r := range v.Observed.Rejections {
		unrecorded.add(rejection{r.Resource, r.Reason, r.Stage, r.Holder, r.Token, r.Current}, -int(r.Count))
	}
	unrecorded.each(func(r rejection, n int) {
		if n > 0 {
			t.violate("%s: token %d of %s was rejected (%s, at %s), and %d of the rejections are not recorded", r.resource, r.token, r.holder, r.reason, r.stage, n)
		}
	})
}

// difference counts how often one side has more or less of a key than the other.
type difference[K comparable] struct {
	counts map[K]int
	keys   []K // in the order in which they were added
}

func newDifference[K comparable]() *difference[K] { return &difference[K]{counts: map[K]int{}} }

func (d *difference[K]) add(key K, n int) {
	if _, ok := d.counts[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.counts[key] += n
}

// each calls differs for each key of which the sides have different numbers.
func (d *difference[K]) each(differs func(key K, n int)) {
	for _, key := range d.keys {
		if n := d.counts[key]; n != 0 {
			differs(key, n)
		}
	}
}
