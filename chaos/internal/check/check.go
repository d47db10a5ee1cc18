// Package check judges chaos runs: each one property by property, by its history and by what was
// observed of it, and several together as a suite. It saves the results, and reads them again.
//
// # Properties
//
//   - I1: per resource, accepted tokens never fall in the order of the write-ahead
//     log, which is the order of positions, and positions have no gaps.
//   - I2: conservation. Nothing is sold twice, nothing is oversold, and every
//     operation decided on what the one before it left.
//   - I3: an operation takes effect at most once: exactly once, on each of its resources, if it
//     was acknowledged, never if it failed, and as resolved if its outcome was unknown.
//   - I5: after a claim nothing of a lower token commits. The times of claims, writes and
//     rejections as stale don't contradict the order of the log.
//   - I7: every accepted token was the create revision of a lock key of its resource, and
//     equal tokens had one lease. Of locks in etcd alone, as is I12.
//   - I8: Fencekit's history, the data, the workers' events and the write-ahead log agree, and
//     rejections that workers saw were recorded.
//   - I9: after the faults end every resource makes progress, no operation takes longer than a
//     bound, and no lock key is left when all workers have closed.
//   - I10: no change of guarded data is without an entry of the same transaction
//     in Fencekit's history.
//   - I11: everything that the scenario requires happened in the run.
//   - I12: a lock is granted only to the first of its queue: every lock key created earlier
//     was deleted before the granted one was.
//   - I13: the history verifies (audit.Database.Verify).
//
// The data settle an operation without an answer. Times of the history are only bounds. A control is checked
// for I2, I3, I9, run and workload alone, and a workload other than the built-in one not for I2, I3 and I10:
// only the workload knows its data.
//
// # What is not promised
//
// I5 accepts a rejection if a higher claim may have committed before it was recorded: the instant of a commit
// can't be known from outside. I8 excuses a rejection that Fencekit could not record.
package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/storage"
)

// Status is the result of a property's check.
type Status string

const (
	Held       Status = "held"
	Flagged    Status = "violated"
	Unchecked  Status = "unchecked"  // the check lacks something that it needs: the run is inconclusive
	Irrelevant Status = "irrelevant" // the property doesn't apply to this kind of run
)

// Finding is the result of checking one property of a run.
type Finding struct {
	Property string   `json:"property"` // as "I3", or "workload"
	Title    string   `json:"title"`    // what it says, in a few words
	Status   Status   `json:"status"`
	Detail   string   `json:"detail"`   // with figures: what was checked, or what is wrong
	Examples []string `json:"examples"` // counterexamples, the first few
}

type property struct {
	name, title   string
	judge         func(v *view, t *tally)
	fenced, stock bool // it is one of Fencekit's runs alone, of the built-in workload's
	ofKeys        bool // it is about keys of etcd
}

var properties = []property{
	{name: "I1", title: "accepted tokens never fall, and positions have no gaps", judge: tokens, fenced: true},
	{name: "I2", title: "nothing is sold twice, oversold or lost", judge: conservation, stock: true},
	{name: "I3", title: "an operation takes effect at most once, and as its outcome says", judge: outcomes, stock: true},
	{name: "I5", title: "after a claim nothing of a lower token is accepted", judge: register, fenced: true},
	{name: "I7", title: "every accepted token is that of a lock key of its resource", judge: provenance, fenced: true, ofKeys: true},
	{name: "I8", title: "history, data, write-ahead log and workers agree", judge: agreement, fenced: true},
	{name: "I9", title: "after the faults end every resource makes progress, and no lock key is left", judge: progress},
	{name: "I10", title: "every change of guarded data has its entry", judge: recorded, fenced: true, stock: true},
	{name: "I11", title: "everything that the scenario requires happened", judge: required, fenced: true},
	{name: "I12", title: "a lock is granted only to the first of its queue", judge: ownership, fenced: true, ofKeys: true},
	{name: "I13", title: "the history verifies", judge: verified, fenced: true},
	{name: "run", title: "operations and processes end, as the script expects", judge: said(func(r *Run) string { return r.Wrong })},
	{name: "workload", title: "the workload's own check passes", judge: ofWorkload},
}

// OfData are the properties of the data: those that a control can violate.
func OfData() []string { return []string{"I2", "I3", "workload"} }

func (p property) find(v *view) Finding {
	f := Finding{Property: p.name, Title: p.title, Status: Irrelevant}
	switch {
	case p.fenced && v.Group != Fenced:
		f.Detail = "a control has no fence"
	case p.stock && !v.Stock:
		f.Detail = "only the workload itself knows what its operations leave in the data"
	case p.ofKeys && v.Beside:
		f.Detail = "the locks are in Postgres"
	case p.name == "I11" && len(v.Requires) == 0:
		f.Detail = "the scenario requires nothing"
	default:
		t := &tally{}
		p.judge(v, t)
		f.Status, f.Detail, f.Examples = t.status(), t.detail(), t.examples
	}
	return f
}

const maxExamples = 5

type tally struct {
	looked   string // what was checked, with figures
	lacking  string // what the check needs and doesn't have
	wrong    int
	examples []string
}

func (t *tally) look(format string, args ...any) { t.looked = fmt.Sprintf(format, args...) }

func (t *tally) lack(format string, args ...any) {
	if t.lacking == "" {
		t.lacking = fmt.Sprintf(format, args...)
	}
}

func (t *tally) violate(format string, args ...any) {
	if t.wrong++; t.wrong <= maxExamples {
		t.examples = append(t.examples, fmt.Sprintf(format, args...))
	}
}

func (t *tally) status() Status {
	switch {
	case t.wrong > 0:
		return Flagged // also if something else could not be checked
	case t.lacking != "":
		return Unchecked
	}
	return Held
}

func (t *tally) detail() string {
	switch {
	case t.wrong > 0:
		return count(t.wrong, "counterexample", "counterexamples") + "; " + t.looked
	case t.lacking != "":
		return t.lacking
	}
	return t.looked
}

func said(by func(*Run) string) func(*view, *tally) {
	return func(v *view, t *tally) {
		t.look("what the run itself found")
		if wrong := by(v.Run); wrong != "" {
			t.violate("%s", wrong)
		}
	}
}

// ofWorkload also asks whether there was anything to check: where no row changes, none is lost.
func ofWorkload(v *view, t *tally) {
	said(func(r *Run) string { return r.Failed })(v, t)
	changes, succeeded := 0, 0
	for _, c := range v.observed.Commits {
		changes += c.Others
	}
	for _, op := range v.operations {
		if op.end == history.OK {
			succeeded++
		}
	}
	if v.Group == Fenced && !v.Stock && changes == 0 && succeeded > 0 {
		t.lack("%s succeeded, and none of their transactions changed a row: such a run proves nothing", count(succeeded, "operation", "operations"))
	}
}

// required checks I11. What is named twice has to happen twice.
func required(v *view, t *tally) {
	times := map[string]int{}
	for _, name := range v.Requires {
		times[name]++
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		if v.Hits[name] < times[name] {
			t.lack("required and did not happen: %s (%d of %d)", name, v.Hits[name], times[name])
			t.examples = append(t.examples, "did not happen: "+name)
		}
	}
	t.look("all %d required hits happened", len(v.Requires))
}

// Names of hits: prefixes, but for the last three.
const (
	HitFault              = "fault "           // and the kind: a fault was injected
	HitPaused             = "paused at "       // and the point: a process paused itself there
	HitRejected           = "rejected at "     // and the stage: the database rejected a grant as stale
	HitResolvedApplied    = "resolved applied" // a Guard resolved a COMMIT in doubt as applied
	HitResolvedNotApplied = "resolved not applied"
	HitOwn                = "claimed within" // a transaction that wrote had made the claim
)

// hitsOf counts what a scenario may require.
func hitsOf(events []history.Event) map[string]int {
	hits := map[string]int{}
	for _, e := range events {
		switch {
		case e.Kind == history.Injected:
			kind, _, _ := strings.Cut(e.Name, " ")
			hits[HitFault+kind]++
		case e.Kind == history.Reached && e.Name == history.ThenPause:
			hits[HitPaused+e.Point]++
		case stale(e) && (e.Stage != string(storage.StageSeal) || e.Cause == ""): // else something else had ended the transaction
			hits[HitRejected+e.Stage]++
		case e.Kind == history.Resolved && e.Error == "" && e.Applied:
			hits[HitResolvedApplied]++
		case e.Kind == history.Resolved && e.Error == "":
			hits[HitResolvedNotApplied]++
		}
	}
	return hits
}

func claimedWithin(entries []observe.Entry) (n int) {
	claims := map[written]bool{}
	for _, e := range entries {
		if at := (written{e.Commit, e.Resource}); e.Kind == "claim" {
			claims[at] = true
		} else if claims[at] {
			n++
		}
	}
	return n
}

// stale reports whether e is a rejection for a higher grant.
func stale(e history.Event) bool {
	return e.Kind == history.Rejected && (e.Reason == string(storage.ReasonStale) || e.Reason == string(storage.ReasonTokensWentBack))
}
