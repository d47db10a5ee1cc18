package check

import (
	"cmp"
	"math"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

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
