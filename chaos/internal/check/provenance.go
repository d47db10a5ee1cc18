package check

import "github.com/fencekit/fencekit/chaos/internal/observe"

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
