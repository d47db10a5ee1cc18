package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

// Names of hits, and what the names of others begin with.
const (
	HitFault              = "fault "                      // and the kind: a fault struck
	HitStopped            = "stopped at "                 // and the point: a process stopped itself there
	HitDied               = "died at "                    // and the point: a process ended itself there
	HitEnded              = "process ended"               // without having been asked to
	HitRefused            = "refused at "                 // and the stage: a grant was refused as stale
	HitEndedStale         = "stale at the end at "        // and the stage: the transaction had ended otherwise, and its grant was found stale then
	HitLost               = "lease lost"                  // by any way
	HitLostMidway         = "lease lost in mid-operation" // while an operation of that process on that resource was open
	HitUnknownApplied     = "unknown applied"             // an outcome stayed unknown to the caller of an operation, and it took effect
	HitUnknownNotApplied  = "unknown not applied"
	HitCutOffApplied      = "cut off applied" // an operation ended with its process, and took effect
	HitCutOffNotApplied   = "cut off not applied"
	HitResolvedApplied    = "resolved applied" // a Guard's COMMIT in doubt was asked about, and had taken effect
	HitResolvedNotApplied = "resolved not applied"
	HitFailed             = "failed: "           // and the class of the error that an operation failed with
	HitCompacted          = "watch compacted"    // etcd had compacted what a worker's watch had still to show
	HitTogether           = "operations at once" // on one resource, at most
	HitQueued             = "lock keys at once"  // of one resource, at most
)

// AtLeast is a hit that a run must have so often.
func AtLeast(number int, hit string) string { return fmt.Sprintf("%s%s%d", hit, atLeast, number) }

const atLeast = ", at least "

// Hits counts what a run met. Names are those above; a refusal for another reason
// than a stale token is named by that reason alone, as "overtaken", "collision" or
// "failed over" (storage.Reason).
//
// What became of an operation the data tell or, if only the workload knows those,
// its answer.
func Hits(r *Record) map[string]int {
	v := newView(r)
	hits := counts{}
	open := map[string]map[string]*operation{} // by process and id
	for _, e := range r.Events {
		if hit := hitOf(e); hit != "" {
			hits[hit]++
		}
		switch e.Kind {
		case history.Invoke:
			if open[e.Process] == nil {
				open[e.Process] = map[string]*operation{}
			}
			open[e.Process][e.Op] = v.byID[e.Op]
			for _, r := range e.Resources {
				hits.atMost(HitTogether, about(open, r))
			}
		case history.OK, history.Fail, history.Unknown:
			delete(open[e.Process], e.Op)
		case history.Ends:
			delete(open, e.Process)
		case history.Lost:
			for _, op := range open[e.Process] {
				if slices.Contains(op.resources, e.Resource) {
					hits[HitLostMidway]++
					break
				}
			}
		}
	}
	for _, op := range v.operations {
		if hit := op.hit(r.Stock); hit != "" {
			hits[hit]++
		}
	}
	queues := map[string]int{}
	for _, k := range r.Observed.Locks.Events {
		switch {
		case k.Gone:
			queues[k.Resource]--
		case k.Revision == k.Created:
			queues[k.Resource]++
			hits.atMost(HitQueued, queues[k.Resource])
		}
	}
	return hits
}

// counts are hits by their names.
type counts map[string]int

// atMost notes how many of something there are at the same time; one is nothing to
// speak of.
func (c counts) atMost(hit string, number int) {
	if number > 1 {
		c[hit] = max(c[hit], number)
	}
}

// about counts the open operations that are about a resource.
func about(open map[string]map[string]*operation, resource string) (n int) {
	for _, ops := range open {
		for _, op := range ops {
			if slices.Contains(op.resources, resource) {
				n++
			}
		}
	}
	return n
}

// hitOf is what an event alone shows.
func hitOf(e history.Event) string {
	switch {
	case e.Kind == history.Strikes:
		kind, _, _ := strings.Cut(e.Name, " ")
		return HitFault + kind
	case e.Kind == history.Reached && e.Name == history.ThereDie:
		return HitDied + e.Point
	case e.Kind == history.Reached:
		return HitStopped + e.Point
	case e.Kind == history.Ends && e.Error != "":
		return HitEnded
	case e.Kind == history.Refused && e.Reason == string(storage.ReasonStale) && e.Stage == string(storage.StageSeal) && e.Met != "":
		return HitEndedStale + e.Stage
	case e.Kind == history.Refused && e.Reason == string(storage.ReasonStale):
		return HitRefused + e.Stage
	case e.Kind == history.Refused:
		return e.Reason
	case e.Kind == history.Lost:
		return HitLost
	case e.Kind == history.Resolved && e.Error == "" && e.Applied:
		return HitResolvedApplied
	case e.Kind == history.Resolved && e.Error == "":
		return HitResolvedNotApplied
	case e.Kind == history.Fail:
		return HitFailed + e.Class
	case e.Kind == history.Note && e.Name == history.NoteCompacted:
		return HitCompacted
	}
	return ""
}

// hit is what an operation's end shows.
func (op *operation) hit(dataKnown bool) string {
	applied := op.applied()
	switch {
	case op.end == history.OK || op.end == history.Fail:
		return ""
	case !dataKnown && len(op.answers) == 0:
		return ""
	case !dataKnown:
		applied = op.answers[0].Applied
	}
	switch {
	case op.end == history.Unknown && applied:
		return HitUnknownApplied
	case op.end == history.Unknown:
		return HitUnknownNotApplied
	case applied:
		return HitCutOffApplied
	}
	return HitCutOffNotApplied
}
