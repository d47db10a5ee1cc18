// Package result has the saved results of chaos runs: their verdicts, and all that is needed
// to read them, and to go on with a suite.
//
// # Files
//
// A Suite is a directory: result.json (the Suite), report.html, and for
// each run a directory, three levels below, with history.jsonl, observed.json and result.json (the Run),
// which is written last: a run that has it is complete. LoadSuite finds the runs by
// it, even if the suite ended before its own file was written.
//
// # Verdicts
//
// A run is violated if a property was, inconclusive if it proves nothing, and passes
// otherwise. A suite is judged by its runs under Fencekit, by whether the same faults
// break its controls, and by whether all runs that were asked for are there.
//
// # What is not promised
//
// Files are trusted: Load takes what they say for what happened. Quantiles of several runs
// are the worst of each, not those of all operations.
package result

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// Fenced is the Group of runs under Fencekit. The others are controls.
const Fenced = "fenced"

// Run is one run of a scenario by one group.
type Run struct {
	Scenario string        `json:"scenario"`
	Family   string        `json:"family"`
	Group    string        `json:"group"` // Fenced, or the name of a control
	Seed     uint64        `json:"seed"`
	Faults   bool          `json:"faults"` // false: the same without faults
	Started  time.Time     `json:"started"`
	Took     time.Duration `json:"took"` // ns
	Dir      string        `json:"dir"`  // of its files: three levels below the suite's, separated by slashes

	Verdict  Verdict         `json:"verdict"`
	Reason   string          `json:"reason"` // of the verdict, one sentence
	Findings []check.Finding `json:"findings"`
	Counts   Counts          `json:"counts"`
	Latency  Quantiles       `json:"latency"`   // of operations that took effect
	HandOver Quantiles       `json:"hand_over"` // of a resource from one process to the next that waited
	Hits     map[string]int  `json:"hits"`      // how often each hit happened
	Schedule []Step          `json:"schedule"`  // of faults, made from the seed
	Progress time.Duration   `json:"progress"`  // bound of I9, ns
	Requires []string        `json:"requires"`  // hits without which it is inconclusive
	Stock    bool            `json:"stock"`     // the built-in workload's data was seen
	Workload string          `json:"workload"`  // its name
	Failed   string          `json:"failed"`    // the error of the workload's own check; empty if none
	Wrong    string          `json:"wrong"`     // what else was wrong with the code under test, for example that it hung; empty if nothing
	Breaks   []string        `json:"breaks"`    // of a control: the properties of which it has to violate at least one
}

// String names a run for people, as "pause-claimed, redlock, seed 7".
func (r *Run) String() string {
	name := fmt.Sprintf("%s, %s, seed %d", r.Scenario, r.Group, r.Seed)
	if !r.Faults {
		name += ", without faults"
	}
	return name
}

// Judge sets the results of the run by its history, in the order of its times, and by what
// was observed: Verdict, Reason, Findings, Counts, Hits, Latency and HandOver.
func (r *Run) Judge(events []history.Event, observed observe.Observation) {
	record := r.record(events, observed)
	r.Findings, r.Counts, r.Hits = check.All(record), check.Count(record), check.Hits(record)
	r.Latency, r.HandOver = latency(record), handOver(record)
	r.Verdict, r.Reason = verdictOf(r.Findings)
}

// record is what the run is checked by.
func (r *Run) record(events []history.Event, observed observe.Observation) *check.Record {
	return &check.Record{
		Fenced: r.Group == Fenced, Stock: r.Stock, Progress: r.Progress, Requires: r.Requires,
		Events: events, Observed: observed, Workload: r.Failed, Wrong: r.Wrong,
	}
}

// Red reports whether the run of a control has violated a property that it has to violate. A
// violation of another property alone does not count.
func (r *Run) Red() bool {
	return r.Verdict == Violated && slices.ContainsFunc(r.Broke(), func(property string) bool { return slices.Contains(r.Breaks, property) })
}

// Broke are the properties that the run violated.
func (r *Run) Broke() []string {
	var names []string
	for _, f := range r.Findings {
		if f.Status == check.Violated {
			names = append(names, f.Property)
		}
	}
	return names
}

// Counts are figures of a run.
type Counts = check.Counts

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration `json:"at"`  // ns from the beginning of the load
	For   time.Duration `json:"for"` // ns until it is reverted; 0 if there is nothing to revert
	Fault string        `json:"fault"`
}

// Verdict is the result of a run or of a suite.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"         // every property held, and what the scenario requires happened
	Violated     Verdict = "violated"     // a property was violated
	Inconclusive Verdict = "inconclusive" // nothing was violated, and nothing is proved
)

func (v Verdict) valid() bool { return v == Pass || v == Violated || v == Inconclusive }

// verdictOf returns the verdict of findings, and its reason: violated if a property was;
// otherwise inconclusive if one could not be checked, as when something that the scenario
// requires did not happen, or if none was checked.
func verdictOf(findings []check.Finding) (Verdict, string) {
	var violated, nothing []string
	held := 0
	for _, f := range findings {
		switch {
		case f.Status == check.Held:
			held++
		case f.Status == check.Irrelevant:
		case f.Status == check.Violated:
			violated = append(violated, textOf(f))
		default:
			nothing = append(nothing, textOf(f))
		}
	}
	switch {
	case len(violated) > 0:
		return Violated, strings.Join(violated, "; ")
	case len(nothing) > 0:
		return Inconclusive, strings.Join(nothing, "; ")
	case held == 0:
		return Inconclusive, "no property was checked"
	}
	return Pass, fmt.Sprintf("%s held", count(held, "property", "properties"))
}

func textOf(f check.Finding) string { return f.Property + ": " + f.Detail }

// count writes a number and what it counts.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Quantiles are the quantiles of Count times: each is one of the times.
type Quantiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50"` // ns
	P90   time.Duration `json:"p90"` // ns
	P99   time.Duration `json:"p99"` // ns
	Max   time.Duration `json:"max"` // ns
}

func quantilesOf(times []time.Duration) Quantiles {
	if len(times) == 0 {
		return Quantiles{}
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { return times[(len(times)*percent+99)/100-1] } // nearest rank
	return Quantiles{len(times), at(50), at(90), at(99), at(100)}
}

// worse takes the greater of each quantile, and adds up the counts.
func (q Quantiles) worse(r Quantiles) Quantiles {
	return Quantiles{q.Count + r.Count, max(q.P50, r.P50), max(q.P90, r.P90), max(q.P99, r.P99), max(q.Max, r.Max)}
}

// latency is how long operations took that took effect.
func latency(record *check.Record) Quantiles {
	invoked := map[string]int64{}
	var times []time.Duration
	for _, e := range record.Events {
		switch e.Kind {
		case history.Invoke:
			invoked[e.Op] = e.At
		case history.OK:
			if at, ok := invoked[e.Op]; ok {
				times = append(times, time.Duration(e.At-at))
			}
		}
	}
	return quantilesOf(times)
}

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
