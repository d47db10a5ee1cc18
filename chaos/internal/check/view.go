package check

import (
	"maps"
	"slices"

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
