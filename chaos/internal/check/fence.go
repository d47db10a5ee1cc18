package check

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// tokens checks I1, in the write-ahead log and in Fencekit's history.
func tokens(v *view, t *tally) {
	t.look("%d entries of %d resources in the write-ahead log, %d in the history", len(v.wal.moves), len(v.wal.byResource), len(v.Observed.Entries))
	if len(v.wal.moves) == 0 {
		t.lack("the write-ahead log shows no entry")
	}
	for _, r := range slices.Sorted(maps.Keys(v.wal.byResource)) {
		var entries []observe.Entry
		for _, m := range v.wal.byResource[r] {
			entries = append(entries, m.Entry)
		}
		checkPositions("the write-ahead log", entries, t)
	}
	kept := map[string][]observe.Entry{}
	for _, e := range v.Observed.Entries {
		kept[e.Resource] = append(kept[e.Resource], e)
	}
	for _, r := range slices.Sorted(maps.Keys(kept)) {
		slices.SortStableFunc(kept[r], func(a, b observe.Entry) int { return int(a.Seq - b.Seq) })
		checkPositions("the history", kept[r], t)
	}
}

// checkPositions checks the entries of one resource.
func checkPositions(where string, entries []observe.Entry, t *tally) {
	var last observe.Entry
	for _, e := range entries {
		if e.Seq != last.Seq+1 {
			t.violate("%s: in %s position %d follows position %d", e.Resource, where, e.Seq, last.Seq)
		}
		switch order := grantOf(e).compare(grantOf(last)); {
		case order < 0:
			t.violate("%s: in %s the %s of %v at position %d follows %v", e.Resource, where, e.Kind, grantOf(e), e.Seq, grantOf(last))
		case order == 0 && e.Kind == "claim":
			t.violate("%s: in %s %v is claimed a second time, at position %d", e.Resource, where, grantOf(e), e.Seq)
		}
		last = e
	}
}

// register checks I5 in two ways that have only the entries in common: by the order of
// commits, and by the times of the workers' events.
func register(v *view, t *tally) {
	t.look("%d moves of fences, %d orders", len(v.wal.moves), len(v.wal.orders))
	if len(v.wal.moves) == 0 {
		t.lack("the write-ahead log shows no entry")
		return
	}
	v.checkClaimed(t)
	v.linearize(t)
}

// checkClaimed checks that each write is under the last claim: not under a lower one, which
// is stale, nor under a grant that never claimed.
func (v *view) checkClaimed(t *tally) {
	orders := map[int][]order{}
	if v.Stock {
		for _, o := range v.wal.orders {
			orders[o.commit] = append(orders[o.commit], o)
		}
	}
	moves := map[int][]*move{}
	for _, m := range v.wal.moves {
		moves[m.commit] = append(moves[m.commit], m)
	}
	claimed := map[string]*move{}
	for n := range v.Observed.Commits {
		for _, m := range moves[n] {
			if m.Kind == "claim" {
				claimed[m.Resource] = m
			} else if last := claimed[m.Resource]; last == nil || grantOf(last.Entry) != grantOf(m.Entry) || last.Holder != m.Holder {
				t.violate("%s: %s by %s with %v at position %d, after %s", m.Resource, m.Kind, m.Holder, grantOf(m.Entry), m.Seq, last.claim())
			}
		}
		for _, o := range orders[n] {
			if last := claimed[o.Resource]; last == nil || last.Token != o.Token {
				t.violate("%s: operation %s wrote with token %d, after %s", o.Resource, o.Op, o.Token, last.claim())
			}
		}
	}
}

// claim describes a claim.
func (m *move) claim() string {
	if m == nil {
		return "no claim"
	}
	return fmt.Sprintf("the claim of %s with %v", m.Holder, grantOf(m.Entry))
}

// provenance checks I7: each token that was accepted, by a claim, a write or in the data,
// is the create revision of a lock key of its resource; and it had one such key, of one
// lease.
func provenance(v *view, t *tally) {
	keys := map[token]observe.LockEvent{}
	for _, k := range v.Observed.Locks.Events {
		if k.Gone {
			continue
		}
		at := token{k.Resource, k.Created}
		if first, ok := keys[at]; ok && (first.Lease != k.Lease || first.Holder != k.Holder) {
			t.violate("%s: token %d belongs to lease %x of %s and to lease %x of %s", k.Resource, k.Created, first.Lease, first.Holder, k.Lease, k.Holder)
			continue
		}
		keys[at] = k
	}
	t.look("%d lock keys and %d accepted moves", len(keys), len(v.wal.moves))
	if v.Observed.Locks.Gap != "" {
		t.lack("the watch of the lock keys has a gap: %s", v.Observed.Locks.Gap)
		return
	}
	if len(v.wal.moves) == 0 {
		t.lack("the write-ahead log shows no entry")
	}
	for _, m := range v.wal.moves {
		if k, ok := keys[token{m.Resource, m.Token}]; !ok || k.Holder != m.Holder {
			t.violate("%s: the %s of %s at position %d was accepted with token %d, which etcd gave %s",
				m.Resource, m.Kind, m.Holder, m.Seq, m.Token, holderOf(k))
		}
	}
	for _, e := range v.Observed.Effects {
		if _, ok := keys[token{e.Resource, e.Token}]; v.Stock && !ok {
			t.violate("%s: operation %s wrote with token %d, which etcd never gave", e.Resource, e.Op, e.Token)
		}
	}
}

// token is a token of a resource.
type token struct {
	resource string
	number   int64
}

func holderOf(k observe.LockEvent) string {
	if k.Holder == "" {
		return "to no holder of this resource"
	}
	return k.Holder
}

// recorded checks I10: a transaction that changed the stock of a resource, or inserted an
// order of it, moved that resource's fence as well.
func recorded(v *view, t *tally) {
	writes := v.wal.writes()
	changes := 0
	for n, c := range v.Observed.Commits {
		for _, change := range c.Changes {
			if change.Table != tableStock && change.Table != tableOrders {
				continue
			}
			if change.Table == tableStock && change.Action == "insert" {
				continue // Prepare inserts the rows
			}
			changes++
			if writes[written{n, change.Row["resource"]}] == nil { // a deletion names no resource, and is never right
				t.violate("transaction %d: %s of %s (%s) without an entry of the same transaction", c.XID, change.Action, change.Table, change.Row["resource"])
			}
		}
	}
	t.look("%d changes of guarded rows", changes)
	if changes == 0 {
		t.lack("the write-ahead log shows no change of guarded rows")
	}
}

// verified checks I13: the history verifies (audit.Database.Verify), and each record of rejections
// names a claim that is in it, since nothing here prunes, and no one makes records up.
func verified(v *view, t *tally) {
	report := v.Observed.Verified
	if report == nil {
		t.lack("the history was not verified")
		return
	}
	t.look("%d entries", report.Entries)
	for _, f := range slices.Concat(report.Findings, report.Unexplained) {
		t.violate("%s", f)
	}
}

// lockKey is a lock key, from its creation to its deletion.
type lockKey struct {
	token
	holder  string
	deleted int64 // revision; the highest number if it still exists
}

// ownership checks I12, in the order of the lock service alone: a granted lock's key was
// the first of its queue at some time. So no key that was created before it was deleted
// after it.
func ownership(v *view, t *tally) {
	keys := v.queuedKeys()
	count := 0
	for _, e := range v.Events {
		if e.Kind != history.Acquired {
			continue
		}
		count++
		k, ok := keys[token{e.Resource, e.Token}]
		switch {
		case v.Observed.Locks.Gap != "": // it may have been missed
		case !ok:
			t.violate("%s: %s was granted token %d, which never was a lock key", e.Resource, e.Holder, e.Token)
		case k.blocker != nil:
			t.violate("%s: %s was granted token %d, and its key was deleted before that of token %d of %s, which was ahead of it in the queue",
				e.Resource, e.Holder, e.Token, k.blocker.number, k.blocker.holder)
		}
	}
	t.look("%d granted locks", count)
	if v.Observed.Locks.Gap != "" {
		t.lack("the watch of the lock keys has a gap: %s", v.Observed.Locks.Gap)
	}
}

// queuedKey is a lock key, and one that was created before it and deleted after it, if there
// is one.
type queuedKey struct {
	lockKey
	blocker *lockKey
}

// queuedKeys returns all lock keys.
func (v *view) queuedKeys() map[token]queuedKey {
	keys := map[token]*lockKey{}
	var inOrder []*lockKey
	for _, k := range v.Observed.Locks.Events {
		at := token{k.Resource, k.Created}
		switch s := keys[at]; {
		case s == nil && !k.Gone:
			s = &lockKey{token: at, holder: k.Holder, deleted: math.MaxInt64}
			keys[at] = s
			inOrder = append(inOrder, s)
		case s != nil && k.Gone:
			s.deleted = k.Revision
		}
	}
	slices.SortStableFunc(inOrder, func(a, b *lockKey) int { return cmp.Compare(a.number, b.number) })
	longest := map[string]*lockKey{} // of each resource, so far
	all := map[token]queuedKey{}
	for _, s := range inOrder {
		q := queuedKey{lockKey: *s}
		if last := longest[s.resource]; last != nil && last.deleted > s.deleted {
			q.blocker = last
		} else {
			longest[s.resource] = s
		}
		all[s.token] = q
	}
	return all
}

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
