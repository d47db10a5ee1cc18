package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/storage"
)

// Names of hits. One that ends with a space is a prefix.
const (
	HitFault              = "fault "                      // and the kind: a fault was injected
	HitPaused             = "paused at "                  // and the point: a process paused itself there
	HitKilled             = "killed at "                  // and the point: a process killed itself there
	HitEnded              = "process ended"               // by itself
	HitRejected           = "rejected at "                // and the stage: a grant was rejected as stale
	HitEndedStale         = "stale at the end at "        // and the stage: something else had ended the transaction, and its grant was then found stale
	HitLost               = "lease lost"                  // for any reason
	HitLostMidway         = "lease lost in mid-operation" // while an operation of that process on that resource ran
	HitUnknownApplied     = "unknown applied"             // the caller of an operation got an unknown outcome, and it took effect
	HitUnknownNotApplied  = "unknown not applied"
	HitCutOffApplied      = "cut off applied" // an operation ended with its process, and took effect
	HitCutOffNotApplied   = "cut off not applied"
	HitResolvedApplied    = "resolved applied" // a Guard resolved a COMMIT in doubt as applied
	HitResolvedNotApplied = "resolved not applied"
	HitFailed             = "failed: "                      // and the class of the error that an operation failed with
	HitCompacted          = "watch compacted"               // etcd had compacted what a worker's watch had not yet shown
	HitTogether           = "operations at once"            // on one resource; the maximum
	HitQueued             = "lock keys at once"             // of one resource; the maximum
	HitGrouped            = "operations in one transaction" // of one resource; the maximum
	HitAcross             = "resources in one transaction"  // of operations on one resource each; the maximum
)

// AtLeast requires a hit that number of times.
func AtLeast(number int, hit string) string { return fmt.Sprintf("%s%s%d", hit, atLeast, number) }

const atLeast = ", at least "

// Hits counts what happened in a run that a scenario may require. Names are those above; a
// rejection for another reason than a stale token is named by that reason alone, as
// "overtaken", "collision" or "failed over" (storage.Reason).
//
// Whether an operation was applied is read from the data or, if only the workload knows its
// data, from the operation's answer.
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
				hits.atOnce(HitTogether, about(open, r))
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
	v.groups(hits)
	queues := map[string]int{}
	for _, k := range r.Observed.Locks.Events {
		switch {
		case k.Gone:
			queues[k.Resource]--
		case k.Revision == k.Created:
			queues[k.Resource]++
			hits.atOnce(HitQueued, queues[k.Resource])
		}
	}
	return hits
}

// groups notes how many operations, and resources, the transactions of groups had.
func (v *view) groups(hits counts) {
	across := map[uint64]map[string]bool{} // by transaction
	for _, e := range v.Observed.Entries {
		hits.atOnce(HitGrouped, len(e.Ops))
		for _, id := range e.Ops {
			if op := v.byID[id]; op == nil || len(op.resources) != 1 {
				continue
			}
			if across[e.XID] == nil {
				across[e.XID] = map[string]bool{}
			}
			across[e.XID][e.Resource] = true
			hits.atOnce(HitAcross, len(across[e.XID]))
		}
	}
}

// counts are hits by their names.
type counts map[string]int

// atOnce notes how many of something there are at the same time; it ignores a single one.
func (c counts) atOnce(hit string, number int) {
	if number > 1 {
		c[hit] = max(c[hit], number)
	}
}

// about counts the open operations that use a resource.
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

// hitOf is the hit that an event is; empty if none.
func hitOf(e history.Event) string {
	switch {
	case e.Kind == history.Injected:
		kind, _, _ := strings.Cut(e.Name, " ")
		return HitFault + kind
	case e.Kind == history.Reached && e.Name == history.ThenKill:
		return HitKilled + e.Point
	case e.Kind == history.Reached:
		return HitPaused + e.Point
	case e.Kind == history.Ends && e.Error != "":
		return HitEnded
	case stale(e) && e.Stage == string(storage.StageSeal) && e.Cause != "":
		return HitEndedStale + e.Stage
	case stale(e):
		return HitRejected + e.Stage
	case e.Kind == history.Rejected:
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

// hit is the hit that an operation is by its outcome; empty if none.
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
