package check

import (
	"maps"
	"slices"

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
