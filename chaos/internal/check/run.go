package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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
	Took     time.Duration `json:"took"` // ns; 0 before it has ended
	Dir      string        `json:"dir"`  // of its files: three levels below the suite's, separated by slashes
	Workload string        `json:"workload"`
	Stock    bool          `json:"stock"`    // the workload is the built-in one, whose data the checks know
	Beside   bool          `json:"beside"`   // Fencekit's locks are in Postgres, beside the fences
	Progress time.Duration `json:"progress"` // bound of I9, ns
	Requires []string      `json:"requires"` // hits without which it is inconclusive
	Schedule []Step        `json:"schedule"` // of faults, made from the seed

	Failed   string         `json:"failed"` // the error of the Workload's own Check; empty if none
	Wrong    string         `json:"wrong"`  // what else was wrong with the code under test, for example that it hung; empty if nothing
	Verdict  Verdict        `json:"verdict"`
	Reason   string         `json:"reason"` // of the verdict, one sentence
	Findings []Finding      `json:"findings"`
	Counts   Counts         `json:"counts"`
	Hits     map[string]int `json:"hits"` // how often each hit happened
}

// Step is one fault of a schedule.
type Step struct {
	At    time.Duration `json:"at"`  // ns from the beginning of the load
	For   time.Duration `json:"for"` // ns until it is reverted; 0 if there is nothing to revert
	Fault string        `json:"fault"`
}

// Verdict is the result of a run or of a suite.
type Verdict string

const (
	Pass         Verdict = "pass"         // every property held, and what the scenario requires happened
	Violated     Verdict = "violated"     // a property was violated
	Inconclusive Verdict = "inconclusive" // nothing was violated, and nothing is proved
)

// String names the run, as "pauses, etcd-mutex, seed 7, without faults".
func (r *Run) String() string {
	name := fmt.Sprintf("%s, %s, seed %d", r.Scenario, r.Group, r.Seed)
	if !r.Faults {
		name += ", without faults"
	}
	return name
}

// Judge sets the results of the run.
func (r *Run) Judge(events []history.Event, observed observe.Observation) {
	v := newView(r, events, observed)
	r.Counts, r.Hits = v.counts(), hitsOf(events)
	if n := claimedWithin(observed.Entries); n > 0 {
		r.Hits[HitOwn] = n
	}
	r.Findings = nil
	for _, p := range properties {
		r.Findings = append(r.Findings, p.find(v))
	}
	r.Verdict, r.Reason = verdictOf(r.Findings)
}

func verdictOf(findings []Finding) (Verdict, string) {
	texts := map[Status][]string{}
	for _, f := range findings {
		texts[f.Status] = append(texts[f.Status], f.Property+": "+f.Detail)
	}
	switch {
	case len(texts[Flagged]) > 0:
		return Violated, strings.Join(texts[Flagged], "; ")
	case len(texts[Unchecked]) > 0:
		return Inconclusive, strings.Join(texts[Unchecked], "; ")
	}
	return Pass, count(len(texts[Held]), "property", "properties") + " held"
}

// Red reports whether the run of a control has violated a property of the data.
func (r *Run) Red() bool {
	return r.Group != Fenced && slices.ContainsFunc(r.Broke(), func(property string) bool { return slices.Contains(OfData(), property) })
}

// Broke are the properties that the run violated.
func (r *Run) Broke() (names []string) {
	for _, f := range r.Findings {
		if f.Status == Flagged {
			names = append(names, f.Property)
		}
	}
	return names
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

type view struct {
	*Run
	events     []history.Event // in the order of their times
	observed   observe.Observation
	operations []*operation // in the order of their invocations
	byID       map[string]*operation
	broken     []string                       // why the history of operations is invalid
	effects    map[string][]observe.Effect    // by resource, in order
	wrote      map[written][]observe.Effect   // by transaction and resource
	times      map[history.Kind]map[key]int64 // of the first events of each grant
}

type written struct {
	commit   int
	resource string
}

type grant struct{ epoch, token int64 }

func (g grant) compare(other grant) int {
	return cmp.Or(cmp.Compare(g.epoch, other.epoch), cmp.Compare(g.token, other.token))
}

func (g grant) String() string {
	if g.epoch > 1 {
		return fmt.Sprintf("token %d of epoch %d", g.token, g.epoch)
	}
	return fmt.Sprintf("token %d", g.token)
}

func grantOf(e observe.Entry) grant { return grant{e.Epoch, e.Token} }

type key struct {
	resource string
	grant
}

func keyOf(e history.Event) key { return key{e.Resource, grant{e.Epoch, e.Token}} }

func newView(r *Run, events []history.Event, observed observe.Observation) *view {
	v := &view{
		Run: r, events: events, observed: observed, byID: map[string]*operation{},
		effects: map[string][]observe.Effect{}, wrote: map[written][]observe.Effect{},
		times: map[history.Kind]map[key]int64{history.Acquired: {}, history.Claimed: {}},
	}
	for _, e := range events {
		v.readOperation(e)
		if times := v.times[e.Kind]; times != nil && times[keyOf(e)] == 0 {
			times[keyOf(e)] = e.At
		}
	}
	tokens := map[written]int64{}
	for _, e := range observed.Entries {
		if e.Kind == "write" {
			tokens[written{e.Commit, e.Resource}] = e.Token
		}
	}
	for i := range observed.Effects {
		e := &observed.Effects[i]
		if e.Token == -1 { // of a batch in a transaction with a claim of its own
			e.Token = tokens[written{e.Commit, e.Resource}]
		}
	}
	for _, e := range observed.Effects {
		v.effects[e.Resource] = append(v.effects[e.Resource], e)
		v.wrote[written{e.Commit, e.Resource}] = append(v.wrote[written{e.Commit, e.Resource}], e)
		if op := v.byID[e.Op]; op != nil {
			op.effects[e.Resource]++
		}
	}
	return v
}

func (v *view) phase(name string) int64 {
	for _, e := range v.events {
		if e.Kind == history.Phase && e.Name == name {
			return e.At
		}
	}
	return 0
}

type operation struct {
	id, process, action string
	resources           []string
	invoked             int64
	end                 history.Kind    // ok, fail or unknown; empty if it was cut off
	ended               int64           // when it ended or was cut off; 0 if it is open still
	failure             string          // its error
	soldOut             bool            // it failed only because too little was in stock
	answers             []history.Event // about an unknown outcome, in order
	effects             map[string]int  // rows in the data, by resource
}

func (op *operation) applied() bool { return len(op.effects) > 0 }

func (op *operation) succeeded() bool { return op.end == history.OK || op.soldOut }

// String names it in counterexamples.
func (op *operation) String() string {
	return fmt.Sprintf("operation %s (%s on %s)", op.id, op.action, op.process)
}

func (v *view) readOperation(e history.Event) {
	op := v.byID[e.Op]
	switch e.Kind {
	case history.Ends: // it cuts off what it had open
		for _, op := range v.operations {
			if op.process == e.Process && op.ended == 0 {
				op.ended = e.At
			}
		}
	case history.Invoke:
		if op != nil {
			v.broken = append(v.broken, fmt.Sprintf("%s was invoked a second time, by %s", op, e.Process))
			return
		}
		op = &operation{id: e.Op, process: e.Process, action: e.Action, resources: e.Resources, invoked: e.At, effects: map[string]int{}}
		v.byID[e.Op] = op
		v.operations = append(v.operations, op)
	case history.OK, history.Fail, history.Unknown:
		if op == nil || op.end != "" {
			v.broken = append(v.broken, fmt.Sprintf("operation %s ended (%s) without being open", e.Op, e.Kind))
			return
		}
		op.end, op.ended, op.failure, op.soldOut = e.Kind, e.At, e.Error, e.SoldOut
	case history.Answer:
		if op != nil {
			op.answers = append(op.answers, e)
		}
	}
}
