package report

import (
	"fmt"
	"io/fs"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// sample is a suite of short runs of two workers. With faults the first one is paused between read
// and write, until the second one has sold all that is in stock.
type sample struct {
	suite *check.Suite
	trace map[string]*trace // by Dir
}

func (s *sample) load(run *check.Run) ([]history.Event, observe.Observation, error) {
	t := s.trace[run.Dir]
	if t == nil {
		return nil, observe.Observation{}, fs.ErrNotExist
	}
	return t.events, t.observed, nil
}

func newSample(command string) *sample {
	return &sample{trace: map[string]*trace{}, suite: &check.Suite{
		Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Took: 312 * time.Second, Command: command,
		Versions: map[string]string{"go": "go1.26.0", "etcd": "3.7.3"},
		Scenarios: []check.Scenario{
			{Name: "pause-read", Family: "pauses", Summary: "A worker is paused between read and write, for longer than its lock's time to live."},
			{Name: "pauses", Family: "pauses", Summary: "Workers are paused by SIGSTOP for longer than their locks' time to live, at random."},
		},
		Groups: []check.Group{
			{Name: check.Fenced, Title: "Fencekit"},
			{Name: "redis-setnx", Title: "Redis SET NX PX", Flaw: "The holder stalls past its expiry, and then frees another's lock."},
			{Name: "redlock", Title: "Redlock of five nodes", Flaw: "The holder stalls past the lock's validity, and nothing checks its write."},
			{Name: "no-lock", Title: "No lock", Flaw: "Workers don't exclude each other.", RedByDesign: true},
		},
	}}
}

// add makes a run, and judges it.
func (s *sample) add(scenario, group string, seed uint64, faults bool, resource string) {
	const initial = 5
	at := func(ms int64, e history.Event) history.Event {
		e.At = int64(time.Hour) + ms*int64(time.Millisecond)
		return e
	}
	grant := func(ms int64, kind history.Kind, process string, token int64) history.Event {
		return at(ms, history.Event{Kind: kind, Process: process, Resource: resource, Token: token})
	}
	op := func(ms int64, kind history.Kind, process, id string) history.Event {
		return at(ms, history.Event{Kind: kind, Process: process, Op: id, Resources: []string{resource}})
	}
	phase := func(ms int64, name string) history.Event {
		return at(ms, history.Event{Kind: history.Phase, Process: history.Runner, Name: name})
	}
	t := &trace{events: []history.Event{phase(0, history.PhaseLoad), op(100, history.Invoke, "w1", "op1"), grant(200, history.Acquired, "w1", 7), grant(210, history.Claimed, "w1", 7)}}
	effect := func(id string, quantity, seen int, token int64) {
		t.observed.Effects = append(t.observed.Effects, observe.Effect{Op: id, Resource: resource, Token: token, Quantity: quantity, Seen: seen})
	}
	switch {
	case !faults:
		effect("op1", 2, initial, 7)
		t.events = append(t.events, op(500, history.OK, "w1", "op1"))
	case group == check.Fenced:
		effect("op2", 5, initial, 9)
		t.events = append(t.events, at(500, history.Event{Kind: history.Injected, Process: history.Runner, Name: "pause w1"}),
			op(600, history.Invoke, "w0", "op2"), grant(2500, history.Acquired, "w0", 9), grant(2510, history.Claimed, "w0", 9), op(2700, history.OK, "w0", "op2"),
			at(3500, history.Event{Kind: history.Reverted, Process: history.Runner, Name: "pause w1"}),
			at(3600, history.Event{Kind: history.Rejected, Process: "w1", Resource: resource, Token: 7, Current: 9, Reason: "stale", Stage: "seal"}),
			op(3700, history.Fail, "w1", "op1"))
	default:
		effect("op2", 5, initial, 0)
		effect("op1", 2, initial, 0)
		t.events = append(t.events, at(500, history.Event{Kind: history.Injected, Process: history.Runner, Name: "pause w1"}),
			op(600, history.Invoke, "w0", "op2"), grant(2500, history.Acquired, "w0", 0), op(2700, history.OK, "w0", "op2"),
			at(3500, history.Event{Kind: history.Reverted, Process: history.Runner, Name: "pause w1"}), op(3600, history.OK, "w1", "op1"))
	}
	last := t.observed.Effects[len(t.observed.Effects)-1]
	t.observed.Stocks = []observe.Stock{{Resource: resource, Initial: initial, Available: last.Seen - last.Quantity}}
	t.events = append(t.events, phase(3800, history.PhaseFaultsOver), phase(3800, history.PhaseFinal),
		op(3900, history.Invoke, "w0", "op3"), at(4000, history.Event{Kind: history.Fail, Process: "w0", Op: "op3", SoldOut: true}), phase(5000, history.PhaseEnd))
	run := check.Run{
		Scenario: scenario, Group: "simulated", Seed: seed, Faults: faults, Dir: fmt.Sprintf("%s/%s/seed-%d-%t", scenario, group, seed, faults),
		Progress: time.Minute, Stock: true, Schedule: []check.Step{{At: time.Second, For: time.Second, Fault: "pause w1"}},
	}
	run.Judge(t.events, t.observed) // it has no write-ahead log and no fence of which a fenced run is asked
	run.Group = group
	s.suite.Runs = append(s.suite.Runs, run)
	t.run = &run
	s.trace[run.Dir] = t
}

func realistic() *sample {
	s := newSample("fencectl chaos run --scenario pause-read --scenario pauses --seeds 4")
	for _, scenario := range []string{"pause-read", "pauses"} {
		for _, group := range []string{check.Fenced, "redis-setnx", "redlock", "no-lock"} {
			for _, faults := range []bool{true, false} {
				s.add(scenario, group, 1, faults, "sku/1")
			}
		}
	}
	s.suite.Judge()
	return s
}
