package check

import (
	"cmp"
	"math"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

func (v *view) logged(t *tally) bool {
	t.look("%d entries and %d effects in the write-ahead log", len(v.observed.Entries), len(v.observed.Effects))
	if len(v.observed.Entries) == 0 {
		t.lack("the write-ahead log shows no entry")
	}
	return len(v.observed.Entries) > 0
}

func tokens(v *view, t *tally) {
	v.logged(t)
	before := map[string]observe.Entry{}
	for _, e := range v.observed.Entries {
		last := before[e.Resource]
		before[e.Resource] = e
		if e.Seq != last.Seq+1 {
			t.violate("%s: position %d follows position %d", e.Resource, e.Seq, last.Seq)
		}
		switch order := grantOf(e).compare(grantOf(last)); {
		case order < 0:
			t.violate("%s: the %s of %v at position %d follows %v", e.Resource, e.Kind, grantOf(e), e.Seq, grantOf(last))
		case order == 0 && e.Kind == "claim":
			t.violate("%s: %v is claimed a second time, at position %d", e.Resource, grantOf(e), e.Seq)
		}
	}
}

// register checks I5.
func register(v *view, t *tally) {
	if !v.logged(t) {
		return
	}
	claims := map[string][]observe.Entry{}
	begun := map[string]observe.Entry{} // the entry of each resource that began last
	latest := map[string]int64{}        // when it did
	for _, e := range v.observed.Entries {
		made := claims[e.Resource]
		switch {
		case e.Kind == "claim":
			claims[e.Resource] = append(made, e)
		case len(made) == 0:
			t.violate("%s: %s by %s with %v at position %d, without a claim", e.Resource, e.Kind, e.Holder, grantOf(e), e.Seq)
		case grantOf(made[len(made)-1]) != grantOf(e) || made[len(made)-1].Holder != e.Holder:
			last := made[len(made)-1]
			t.violate("%s: %s by %s with %v at position %d, after the claim of %s with %v", e.Resource, e.Kind, e.Holder, grantOf(e), e.Seq, last.Holder, grantOf(last))
		}
		began, ended := v.span(e)
		if other, ok := begun[e.Resource]; ok && ended < latest[e.Resource] {
			t.violate("%s: the %s at position %d had ended before the %s at position %d began", e.Resource, e.Kind, e.Seq, other.Kind, other.Seq)
		}
		if _, ok := begun[e.Resource]; !ok || began > latest[e.Resource] {
			begun[e.Resource], latest[e.Resource] = e, began
		}
	}
	for _, e := range v.events {
		higher := func(c observe.Entry) bool {
			began, _ := v.span(c)
			return grantOf(c).compare(keyOf(e).grant) > 0 && began <= e.At
		}
		if stale(e) && !slices.ContainsFunc(claims[e.Resource], higher) {
			t.violate("%s: %v of %s was rejected as stale, before any higher claim", e.Resource, keyOf(e).grant, e.Holder)
		}
	}
}

// span bounds the commit of an entry by the times of events, if there are any.
func (v *view) span(e observe.Entry) (began, ended int64) {
	began, ended = math.MinInt64, math.MaxInt64
	if e.Kind == "claim" {
		if at, ok := v.times[history.Acquired][key{e.Resource, grantOf(e)}]; ok {
			began = at
		}
		if at, ok := v.times[history.Claimed][key{e.Resource, grantOf(e)}]; ok {
			ended = at
		}
		return began, ended
	}
	ids := e.Ops
	if v.Stock {
		ids = nil
		for _, effect := range v.wrote[written{e.Commit, e.Resource}] {
			ids = append(ids, effect.Op)
		}
	}
	for _, id := range ids {
		if op := v.byID[id]; op != nil {
			began = max(began, op.invoked)
			if op.end == history.OK {
				ended = min(ended, op.ended)
			}
		}
	}
	return began, ended
}

type token struct {
	resource string
	number   int64
}

func provenance(v *view, t *tally) {
	v.logged(t)
	if v.observed.Locks.Gap != "" {
		t.lack("the watch of the lock keys has a gap: %s", v.observed.Locks.Gap)
		return
	}
	keys := map[token]observe.LockEvent{}
	for _, k := range v.observed.Locks.Events {
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
	for _, e := range v.observed.Entries {
		if k, ok := keys[token{e.Resource, e.Token}]; !ok || k.Holder != e.Holder {
			t.violate("%s: the %s of %s at position %d was accepted with token %d, which etcd gave to %s",
				e.Resource, e.Kind, e.Holder, e.Seq, e.Token, cmp.Or(k.Holder, "no holder of this resource"))
		}
	}
	for _, e := range v.observed.Effects {
		if _, ok := keys[token{e.Resource, e.Token}]; v.Stock && !ok {
			t.violate("%s: operation %s wrote with token %d, which etcd never gave", e.Resource, e.Op, e.Token)
		}
	}
}

// ownership checks I12: no key that was created before a granted one was deleted after it.
func ownership(v *view, t *tally) {
	if v.observed.Locks.Gap != "" {
		t.lack("the watch of the lock keys has a gap: %s", v.observed.Locks.Gap)
		return
	}
	deleted := map[token]int64{} // revisions; the highest number for a key that still exists
	for _, k := range v.observed.Locks.Events {
		deleted[token{k.Resource, k.Created}] = math.MaxInt64
		if k.Gone {
			deleted[token{k.Resource, k.Created}] = k.Revision
		}
	}
	granted := 0
	for _, e := range v.events {
		if e.Kind != history.Acquired {
			continue
		}
		granted++
		own, ok := deleted[token{e.Resource, e.Token}]
		if !ok {
			t.violate("%s: %s was granted token %d, which never was a lock key", e.Resource, e.Holder, e.Token)
			continue
		}
		for other, at := range deleted {
			if other.resource == e.Resource && other.number < e.Token && at > own {
				t.violate("%s: %s was granted token %d, and its key was deleted before that of token %d, which was ahead of it in the queue",
					e.Resource, e.Holder, e.Token, other.number)
				break
			}
		}
	}
	t.look("%d granted locks", granted)
}

// agreement checks I8.
func agreement(v *view, t *tally) {
	v.logged(t)
	for _, c := range v.observed.Commits {
		for _, change := range c.Changes {
			if change.Table == observe.TableHistory && change.Action != "INSERT" {
				t.violate("transaction %d: %s of the history, which is only appended to", c.XID, change.Action)
			}
		}
	}
	if report := v.observed.Verified; report != nil && int(report.Entries) != len(v.observed.Entries) {
		t.violate("the history has %d entries, and the write-ahead log %d", report.Entries, len(v.observed.Entries))
	}
	if v.Stock {
		v.compareOps(t)
	}
	v.compareClaims(t)
	v.compareRejections(t)
}

// compareOps compares the operations that entries name with the rows of the same transactions. Those of a Hold
// name none.
func (v *view) compareOps(t *tally) {
	for _, e := range v.observed.Entries {
		unseen := slices.Clone(e.Ops)
		for _, o := range v.wrote[written{e.Commit, e.Resource}] {
			if e.Token != o.Token {
				t.violate("%s: operation %s wrote with token %d, its entry at position %d has token %d", o.Resource, o.Op, o.Token, e.Seq, e.Token)
			}
			if len(e.Ops) > 0 && !slices.Contains(e.Ops, o.Op) {
				t.violate("%s: operation %s wrote, and its entry at position %d names %v", o.Resource, o.Op, e.Seq, e.Ops)
			}
			unseen = slices.DeleteFunc(unseen, func(op string) bool { return op == o.Op })
		}
		for _, op := range unseen {
			t.violate("%s: the entry at position %d names operation %s, which changed nothing there", e.Resource, e.Seq, op)
		}
	}
}

func (v *view) compareClaims(t *tally) {
	type claim struct {
		key
		holder string
	}
	made := map[claim]bool{}
	for _, e := range v.observed.Entries {
		if e.Kind == "claim" {
			made[claim{key{e.Resource, grantOf(e)}, e.Holder}] = true
		}
	}
	for _, e := range v.events {
		if e.Kind == history.Claimed && !made[claim{keyOf(e), e.Holder}] {
			t.violate("%s: %s recorded a claim with %v as %s, which is not in the write-ahead log", e.Resource, e.Process, keyOf(e).grant, e.Holder)
		}
	}
}

// compareRejections allows more than the workers saw: some were killed.
func (v *view) compareRejections(t *tally) {
	recorded := map[observe.Rejection]int64{} // by all but Count
	for _, r := range v.observed.Rejections {
		n := r.Count
		r.Count = 0
		recorded[r] += n
	}
	for _, e := range v.events {
		if e.Kind != history.Rejected || e.Error != "" {
			continue
		}
		r := observe.Rejection{Resource: e.Resource, Reason: e.Reason, Stage: e.Stage, Token: e.Token, Holder: e.Holder, Current: e.Current}
		if recorded[r]--; recorded[r] < 0 {
			t.violate("%s: token %d of %s was rejected (%s, at %s), which is not recorded", r.Resource, r.Token, r.Holder, r.Reason, r.Stage)
		}
	}
}

func recorded(v *view, t *tally) {
	writes := map[written]bool{}
	for _, e := range v.observed.Entries {
		if e.Kind == "write" {
			writes[written{e.Commit, e.Resource}] = true
		}
	}
	changes := 0
	for n, c := range v.observed.Commits {
		for _, change := range c.Changes {
			if change.Table == observe.TableHistory {
				continue
			}
			changes++
			if !writes[written{n, change.Row["resource"]}] { // a deletion names no resource, and is never right
				t.violate("transaction %d: %s of %s (%s) without an entry of the same transaction", c.XID, change.Action, change.Table, change.Row["resource"])
			}
		}
	}
	t.look("%d changes of guarded rows", changes)
	if changes == 0 {
		t.lack("the write-ahead log shows no change of guarded rows")
	}
}

// verified checks I13, and that the claim that each rejection names is in the history: nothing here prunes.
func verified(v *view, t *tally) {
	report := v.observed.Verified
	if report == nil {
		t.lack("the history was not verified")
		return
	}
	t.look("%d entries", report.Entries)
	for _, f := range slices.Concat(report.Findings, report.Unexplained) {
		t.violate("%s", f)
	}
}
