package result

import (
	"slices"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
)

// handOver is how long resources had no holder while a process waited: from the observed
// deletion of a grant's lock key until another process had claimed the next grant, if that
// process had an operation on the resource before. Controls that claim nothing have none.
func handOver(record *check.Record) Quantiles {
	h := handOvers{gone: map[grant]int64{}, open: map[string]history.Event{}, last: map[string]history.Event{}}
	for _, e := range record.Observed.Locks.Events {
		if e.Gone {
			h.gone[grant{e.Resource, e.Created}] = e.At
		}
	}
	for _, e := range record.Events {
		h.take(e)
	}
	return quantilesOf(h.times)
}

type grant struct {
	resource string
	token    int64
}

type handOvers struct {
	gone  map[grant]int64          // when the lock key was deleted
	open  map[string]history.Event // operations that have begun, by id
	last  map[string]history.Event // the last claim of a resource
	times []time.Duration
}

func (h *handOvers) take(e history.Event) {
	switch e.Kind {
	case history.Invoke:
		h.open[e.Op] = e
	case history.OK, history.Fail, history.Unknown:
		delete(h.open, e.Op)
	case history.Ends:
		for op, o := range h.open {
			if o.Process == e.Process {
				delete(h.open, op)
			}
		}
	case history.Claimed:
		before := h.last[e.Resource]
		free := h.gone[grant{e.Resource, before.Token}] // 0 if its deletion was not observed
		if before.Process != e.Process && h.waited(e, free) {
			h.times = append(h.times, max(0, time.Duration(e.At-free))) // the observer may see the deletion later
		}
		h.last[e.Resource] = e
	}
}

// waited reports whether the claiming process had an operation on the resource by then.
func (h *handOvers) waited(claim history.Event, by int64) bool {
	for _, o := range h.open {
		if o.Process == claim.Process && o.At <= by && slices.Contains(o.Resources, claim.Resource) {
			return true
		}
	}
	return false
}
