package check

import (
	"cmp"
	"math"
	"slices"

	"github.com/fencekit/fencekit/chaos/internal/history"
)

// stay is for how long a lock key was there, in revisions.
type stay struct {
	token
	holder string
	gone   int64 // revision at which it went; the highest there is if it is there still
}

// ownership checks I12, in the order of the lock service alone: who was granted a lock
// was the first of its queue at some time while its key was there. So no key that came
// before was there for longer.
func ownership(v *view, t *tally) {
	earlier := v.longestBefore()
	count := 0
	for _, e := range v.Events {
		if e.Kind != history.Acquired {
			continue
		}
		count++
		k, ok := earlier[token{e.Resource, e.Token}]
		switch {
		case v.Observed.Locks.Gap != "": // it may have been missed
		case !ok:
			t.violate("%s: %s was granted token %d, of which there never was a lock key", e.Resource, e.Holder, e.Token)
		case k.outlasted != nil:
			t.violate("%s: %s was granted token %d, and its key had gone before that of token %d of %s, who was before it",
				e.Resource, e.Holder, e.Token, k.outlasted.number, k.outlasted.holder)
		}
	}
	t.look("%d locks that were granted", count)
	if v.Observed.Locks.Gap != "" {
		t.lack("the watch of the lock keys has a gap: %s", v.Observed.Locks.Gap)
	}
}

// queued is a stay, and the one that came before it and was there for longer, if one
// was.
type queued struct {
	stay
	outlasted *stay
}

// longestBefore returns all stays.
func (v *view) longestBefore() map[token]queued {
	stays := map[token]*stay{}
	var inOrder []*stay
	for _, k := range v.Observed.Locks.Events {
		at := token{k.Resource, k.Created}
		switch s := stays[at]; {
		case s == nil && !k.Gone:
			s = &stay{token: at, holder: k.Holder, gone: math.MaxInt64}
			stays[at] = s
			inOrder = append(inOrder, s)
		case s != nil && k.Gone:
			s.gone = k.Revision
		}
	}
	slices.SortStableFunc(inOrder, func(a, b *stay) int { return cmp.Compare(a.number, b.number) })
	longest := map[string]*stay{} // of each resource, so far
	all := map[token]queued{}
	for _, s := range inOrder {
		q := queued{stay: *s}
		if last := longest[s.resource]; last != nil && last.gone > s.gone {
			q.outlasted = last
		} else {
			longest[s.resource] = s
		}
		all[s.token] = q
	}
	return all
}
