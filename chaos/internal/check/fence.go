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
