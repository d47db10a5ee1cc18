// Package check checks a chaos run, property by property: by its history and by what was
// observed of it.
//
// # Properties
//
//   - I1: per resource, accepted tokens never fall in the order of the write-ahead
//     log, which is the order of positions, and positions have no gaps.
//   - I2: conservation. Nothing is sold twice, nothing is oversold, and every
//     operation decided on what the one before it left.
//   - I3: an operation takes effect at most once: exactly once, on each of its resources, if it was acknowledged, never
//     if it failed, and as resolved if its outcome was unknown.
//   - I5: claims, writes and rejections as stale are linearizable as operations on a fenced
//     register, and after a claim nothing of a lower token commits.
//   - I7: every accepted token was the create revision of a lock key of its resource, and
//     equal tokens had one lease.
//   - I8: Fencekit's history, the workers' and the write-ahead log agree, and
//     rejections that workers saw were recorded.
//   - I9: after the faults end every resource makes progress within a bound, and no lock key
//     is left when all workers have closed.
//   - I10: no change of guarded data is without an entry of the same transaction
//     in Fencekit's history.
//   - I11: everything that the scenario requires happened in the run.
//   - I12: a lock is granted only to the first of its queue: every lock key created earlier
//     was deleted before the granted one was.
//   - I13: the history verifies (audit.Database.Verify).
//
// # How
//
// The order of commits is that of the write-ahead log (observe.Commit), which
// shows the entries of Fencekit's history and the rows of the built-in
// workload by transaction. The data settle an operation without an answer: its effect is
// in them or it isn't. Times of the history are only bounds: an event was recorded before
// or after another.
//
// A control is checked for I2, I3, I9, run and workload alone. A workload other than the
// built-in one is not checked for I2, I3 and I10: only the workload knows its data.
//
// # What is not promised
//
// I5 accepts a rejection if a higher claim may have committed before it was recorded: the
// instant of a commit can't be known from outside. It searches for an order for a bounded
// time, after which the run is inconclusive. I8 excuses a rejection that Fencekit reports it
// could not record.
//
// A Finding is about one run.
package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
	"github.com/fencekit/fencekit/storage"
)

// Record is what a run is checked by.
type Record struct {
	Fenced   bool                // by Fencekit; a control otherwise
	Stock    bool                // the data is that of the built-in workload, so that Effects and Stocks are known
	Progress time.Duration       // the time within which every resource has to make progress after the faults (I9)
	Requires []string            // the hits that the scenario requires (I11)
	Events   []history.Event     // in the order of their times
	Observed observe.Observation // from outside
	Workload string              // why the workload's own check failed; empty if it didn't
	Wrong    string              // what else was wrong with the code under test, for example that it hung; empty if nothing
}

// Status is the result of a property's check.
type Status string

// The statuses.
const (
	Held       Status = "held"
	Violated   Status = "violated"
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

// property is one property that a run is checked for.
type property struct {
	name, title string
	irrelevant  func(r *Record) string // why it doesn't apply to the run; empty if it does
	judge       func(v *view, t *tally)
}

// properties are in the order of All.
var properties = []property{
	{"I1", "accepted tokens never fall, and positions have no gaps", ofFenced, tokens},
	{"I2", "nothing is sold twice, oversold or lost", ofAnyStock, conservation},
	{"I3", "an operation takes effect at most once, and as its outcome says", ofAnyStock, outcomes},
	{"I5", "after a claim nothing of a lower token is accepted", ofFenced, register},
	{"I7", "every accepted token is that of a lock key of its resource", ofFenced, provenance},
	{"I8", "history, data, write-ahead log and workers agree", ofFenced, agreement},
	{"I9", "after the faults end every resource makes progress, and no lock key is left", ofAny, progress},
	{"I10", "every change of guarded data has its entry", ofFencedStock, recorded},
	{"I11", "everything that the scenario requires happened", ofRequired, required},
	{"I12", "a lock is granted only to the first of its queue", ofFenced, ownership},
	{"I13", "the history verifies", ofFenced, verified},
	{"run", "operations and processes end, as the script expects", ofAny, run},
	{"workload", "the workload's own check passes", ofAny, workload},
}

// OfData are the properties of the data: those that a control can violate.
func OfData() []string { return []string{"I2", "I3", "workload"} }

// All checks a run for every property, in the order of their numbers; the workload's own
// check comes last.
func All(r *Record) []Finding {
	v := newView(r)
	findings := make([]Finding, 0, len(properties))
	for _, p := range properties {
		findings = append(findings, p.find(v))
	}
	return findings
}

func (p property) find(v *view) Finding {
	f := Finding{Property: p.name, Title: p.title, Status: Irrelevant, Detail: p.irrelevant(v.Record)}
	if f.Detail != "" {
		return f
	}
	t := &tally{}
	p.judge(v, t)
	f.Status, f.Detail, f.Examples = t.status(), t.detail(), t.examples
	return f
}

func ofAny(*Record) string { return "" }

func ofFenced(r *Record) string {
	if !r.Fenced {
		return "a control has no fence"
	}
	return ""
}

func ofAnyStock(r *Record) string {
	if !r.Stock {
		return "only the workload itself knows what its operations leave in the data"
	}
	return ""
}

func ofFencedStock(r *Record) string {
	if why := ofFenced(r); why != "" {
		return why
	}
	return ofAnyStock(r)
}

// maxExamples bounds the counterexamples of a finding.
const maxExamples = 5

// tally is the result of a property's check so far.
type tally struct {
	looked   string // what was checked, with figures
	lacking  string // what the check needs and doesn't have
	wrong    int
	examples []string
}

// look says what is checked.
func (t *tally) look(format string, args ...any) { t.looked = fmt.Sprintf(format, args...) }

// lack says that the check lacks something that it needs.
func (t *tally) lack(format string, args ...any) {
	if t.lacking == "" {
		t.lacking = fmt.Sprintf(format, args...)
	}
}

// violate adds a counterexample.
func (t *tally) violate(format string, args ...any) {
	if t.wrong++; t.wrong <= maxExamples {
		t.examples = append(t.examples, fmt.Sprintf(format, args...))
	}
}

func (t *tally) status() Status {
	switch {
	case t.wrong > 0:
		return Violated // also if something else could not be checked
	case t.lacking != "":
		return Unchecked
	}
	return Held
}

func (t *tally) detail() string {
	switch {
	case t.wrong == 1:
		return "1 counterexample; " + t.looked
	case t.wrong > 1:
		return fmt.Sprintf("%d counterexamples; %s", t.wrong, t.looked)
	case t.lacking != "":
		return t.lacking
	}
	return t.looked
}

// run reports what else is wrong with the code under test: it hung, it crashed, or it did
// not end as the script expects.
func run(v *view, t *tally) {
	t.look("its processes")
	if v.Wrong != "" {
		t.violate("%s", v.Wrong)
	}
}

// workload reports what the workload's own check said.
func workload(v *view, t *tally) {
	t.look("its own check")
	if v.Workload != "" {
		t.violate("%s", v.Workload)
	}
}

// required checks I11. A run without everything that its scenario requires is inconclusive,
// not violated.
func required(v *view, t *tally) {
	hits := Hits(v.Record)
	for _, name := range slices.Sorted(slices.Values(v.Requires)) {
		hit, least, _ := strings.Cut(name, atLeast)
		if int64(hits[hit]) < max(1, number(least)) {
			t.lack("required and did not happen: %s", name)
			t.examples = append(t.examples, "did not happen: "+name)
		}
	}
	t.look("all %d required hits happened", len(v.Requires))
}

func ofRequired(r *Record) string {
	if why := ofFenced(r); why != "" {
		return why
	}
	if len(r.Requires) == 0 {
		return "the scenario requires nothing"
	}
	return ""
}

// Names of hits: prefixes, but for the last two.
const (
	HitFault              = "fault "           // and the kind: a fault was injected
	HitPaused             = "paused at "       // and the point: a process paused itself there
	HitRejected           = "rejected at "     // and the stage: the database rejected a grant as stale
	HitResolvedApplied    = "resolved applied" // a Guard resolved a COMMIT in doubt as applied
	HitResolvedNotApplied = "resolved not applied"
)

// AtLeast requires a hit that number of times.
func AtLeast(number int, hit string) string { return fmt.Sprintf("%s%s%d", hit, atLeast, number) }

const atLeast = ", at least "

// Hits counts what happened in a run that a scenario may require.
func Hits(r *Record) map[string]int {
	hits := map[string]int{}
	for _, e := range r.Events {
		if hit := hitOf(e); hit != "" {
			hits[hit]++
		}
	}
	return hits
}

// hitOf is the hit that an event is; empty if none.
func hitOf(e history.Event) string {
	switch {
	case e.Kind == history.Injected:
		kind, _, _ := strings.Cut(e.Name, " ")
		return HitFault + kind
	case e.Kind == history.Reached && e.Name == history.ThenPause:
		return HitPaused + e.Point
	case stale(e) && (e.Stage != string(storage.StageSeal) || e.Cause == ""): // else something else had ended the transaction
		return HitRejected + e.Stage
	case e.Kind == history.Resolved && e.Error == "" && e.Applied:
		return HitResolvedApplied
	case e.Kind == history.Resolved && e.Error == "":
		return HitResolvedNotApplied
	}
	return ""
}
