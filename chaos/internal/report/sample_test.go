package report

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/history"
	"github.com/fencekit/fencekit/chaos/internal/observe"
)

// sample is a suite made by a small simulation: workers that take a lock with a
// time to live, read, and write what they decided, while some are paused.
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

// plan is a run to simulate.
type plan struct {
	scenario, group string
	seed            uint64
	faults          bool
	workers         int
	resources       []string
	initial         int
	step            time.Duration // that the simulation takes
	length          time.Duration
	think           time.Duration // about what an operation takes
	pauses          []pause
}

type pause struct {
	worker   int
	at, long time.Duration
	began    time.Duration
}

func newSample(command string) *sample {
	return &sample{trace: map[string]*trace{}, suite: &check.Suite{
		Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Took: 312 * time.Second, Command: command,
		Versions: map[string]string{"go": "go1.26.0", "etcd": "3.7.3", "postgres": "15.14", "redis": "7.0.15", "fencekit": "(devel)"},
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

// add simulates a run, and judges it.
func (s *sample) add(p plan) *check.Run {
	run := check.Run{
		Scenario: p.scenario, Family: "pauses", Group: p.group, Seed: p.seed, Faults: p.faults, Started: s.suite.Started, Took: p.length,
		Dir: fmt.Sprintf("%s/%s/seed-%d-%t", p.scenario, p.group, p.seed, p.faults), Progress: time.Minute, Stock: true, Workload: "stock",
	}
	for _, stop := range p.pauses {
		run.Schedule = append(run.Schedule, check.Step{At: stop.at, For: stop.long, Fault: fmt.Sprintf("pause w%d", stop.worker)})
	}
	sim := newSimulation(p)
	sim.run()
	run.Group = "simulated" // it has no write-ahead log and no fence of which a fenced run is asked
	run.Judge(sim.events, sim.observed)
	run.Group = p.group
	s.trace[run.Dir] = &trace{&run, sim.events, sim.observed}
	s.suite.Runs = append(s.suite.Runs, run)
	return &s.suite.Runs[len(s.suite.Runs)-1]
}

const lockTTL = 2 * time.Second

// simulation goes through time step by step.
type simulation struct {
	plan
	random   *rand.Rand
	now      time.Duration
	events   []history.Event
	observed observe.Observation
	workers  []*simWorker
	locks    map[string]*simLock
	stock    map[string]int
	revision int64
	ops      int
}

type simLock struct {
	owner   *simWorker
	token   int64
	expires time.Duration
	claimed int64
}

type simWorker struct {
	name     string
	paused   bool
	resource string
	op       string
	token    int64 // it believes to hold under
	held     bool
	seen     int
	quantity int
	busy     time.Duration // until then
	keep     int           // operations before it gives the lock up
}

func newSimulation(p plan) *simulation {
	p.pauses = slices.Clone(p.pauses)
	s := &simulation{plan: p, random: rand.New(rand.NewPCG(p.seed, 7)), locks: map[string]*simLock{}, stock: map[string]int{}, revision: 100}
	for _, r := range p.resources {
		s.locks[r] = &simLock{}
		s.stock[r] = p.initial
	}
	for i := range p.workers {
		s.workers = append(s.workers, &simWorker{name: fmt.Sprintf("w%d", i)})
	}
	return s
}

func (s *simulation) record(e history.Event) {
	e.At = int64(time.Hour + s.now)
	s.events = append(s.events, e)
}

func (s *simulation) run() {
	for _, w := range s.workers {
		s.record(history.Event{Kind: history.Starts, Process: w.name})
	}
	s.phase(history.PhaseLoad)
	reverted := false
	for ; s.now < s.length || s.atWork(); s.now += s.step {
		if s.faults {
			s.inject()
		}
		if !reverted && s.now > s.length*8/10 {
			reverted = true
			s.phase(history.PhaseFaultsOver)
			s.phase(history.PhaseFinal)
		}
		first := s.random.IntN(len(s.workers))
		for i := range s.workers {
			if w := s.workers[(first+i)%len(s.workers)]; !w.paused {
				s.work(w)
			}
		}
	}
	s.phase(history.PhaseEnd)
	for _, r := range s.resources {
		s.observed.Stocks = append(s.observed.Stocks, observe.Stock{Resource: r, Initial: s.initial, Available: s.stock[r]})
	}
}

// atWork reports whether an operation has begun that has not ended.
func (s *simulation) atWork() bool {
	return slices.ContainsFunc(s.workers, func(w *simWorker) bool { return w.op != "" })
}

func (s *simulation) phase(name string) {
	s.record(history.Event{Kind: history.Phase, Process: history.Runner, Name: name})
}

// inject pauses workers between read and write, and lets them go on.
func (s *simulation) inject() {
	for i := range s.pauses {
		p := &s.pauses[i]
		w := s.workers[p.worker]
		name := "pause " + w.name
		switch {
		case p.began == 0 && s.now >= p.at && w.held && s.now < w.busy:
			p.began, w.paused = s.now, true
			s.record(history.Event{Kind: history.Injected, Process: history.Runner, Name: name})
		case w.paused && p.began != 0 && s.now >= p.began+p.long:
			w.paused = false
			p.began = time.Hour // over
			s.record(history.Event{Kind: history.Reverted, Process: history.Runner, Name: name})
		}
	}
}

// work is what a worker does in one step.
func (s *simulation) work(w *simWorker) {
	if s.now < w.busy {
		s.renew(w)
		return
	}
	switch {
	case w.op == "" && s.now < s.length:
		s.invoke(w)
	case w.op == "":
	case !w.held:
		s.acquire(w)
	default:
		s.write(w)
	}
}

func (s *simulation) renew(w *simWorker) {
	if l := s.locks[w.resource]; w.held && l.owner == w {
		l.expires = s.now + lockTTL
	}
}

func (s *simulation) invoke(w *simWorker) {
	if !w.held {
		w.resource = s.resources[s.random.IntN(len(s.resources))]
		w.keep = 1 + s.random.IntN(6)
	}
	s.ops++
	w.op = fmt.Sprintf("op-%d", s.ops)
	w.quantity = 1 + s.random.IntN(3)
	s.record(history.Event{Kind: history.Invoke, Process: w.name, Op: w.op, Action: "do", Resources: []string{w.resource}})
	if w.held {
		s.read(w)
	}
}

func (s *simulation) acquire(w *simWorker) {
	l := s.locks[w.resource]
	if l.owner != nil && l.expires > s.now && s.group != "no-lock" {
		return
	}
	if l.owner != nil && l.expires <= s.now {
		s.keyGone(w.resource, l)
	}
	s.revision += int64(1 + s.random.IntN(5))
	l.owner, l.token, l.expires = w, s.revision, s.now+lockTTL
	w.held, w.token = true, s.revision
	if s.group != check.Fenced {
		w.token = 0
	}
	s.record(history.Event{Kind: history.Acquired, Process: w.name, Resource: w.resource, Token: w.token})
	if s.group == check.Fenced {
		l.claimed = w.token
		s.record(history.Event{Kind: history.Claimed, Process: w.name, Resource: w.resource, Token: w.token})
	}
	s.read(w)
}

func (s *simulation) keyGone(resource string, l *simLock) {
	s.observed.Locks.Events = append(s.observed.Locks.Events, observe.LockEvent{At: int64(time.Hour + s.now), Resource: resource, Created: l.token, Gone: true})
}

func (s *simulation) read(w *simWorker) {
	w.seen = s.stock[w.resource]
	w.busy = s.now + s.think/2 + time.Duration(s.random.Int64N(int64(s.think)))
}

func (s *simulation) write(w *simWorker) {
	l := s.locks[w.resource]
	end := history.Event{Kind: history.OK, Process: w.name, Op: w.op}
	switch {
	case s.group == check.Fenced && w.token < l.claimed:
		s.record(history.Event{Kind: history.Rejected, Process: w.name, Resource: w.resource, Token: w.token, Current: l.claimed, Reason: "stale", Stage: "seal"})
		end.Kind, end.Error = history.Fail, "superseded"
		w.held = false
	case w.seen < w.quantity:
		end.Kind, end.SoldOut = history.Fail, true
		w.busy = s.now + 20*time.Millisecond
	default:
		s.stock[w.resource] = w.seen - w.quantity
		s.observed.Effects = append(s.observed.Effects, observe.Effect{
			Op: w.op, Resource: w.resource, Token: w.token, Quantity: w.quantity, Seen: w.seen,
		})
	}
	s.record(end)
	w.op = ""
	if w.keep--; w.held && w.keep <= 0 {
		s.release(w)
	}
}

func (s *simulation) release(w *simWorker) {
	w.held = false
	if l := s.locks[w.resource]; l.owner == w || s.group == "redis-setnx" { // redis-setnx deletes the key unconditionally
		s.keyGone(w.resource, l)
		l.owner = nil
	}
	s.record(history.Event{Kind: history.Released, Process: w.name, Resource: w.resource, Token: w.token})
}

// realisticOnce is made once: tests only read it.
var realisticOnce = sync.OnceValue(realistic)

// realistic is a suite as a short run leaves it: a scripted scenario with little
// stock, and one under random load with plenty.
func realistic() *sample {
	s := newSample("fencectl chaos run --scenario pause-read --scenario pauses --seeds 4")
	for seed := range uint64(2) {
		for _, group := range []string{check.Fenced, "redis-setnx", "redlock", "no-lock"} {
			for _, faults := range []bool{true, false} {
				s.add(plan{
					scenario: "pause-read", group: group, seed: seed, faults: faults, workers: 3, resources: []string{"sku/1"}, initial: 400,
					step: time.Millisecond, length: 7 * time.Second, think: 24 * time.Millisecond, pauses: []pause{{worker: 1, at: 500*time.Millisecond + time.Duration(seed)*30*time.Millisecond, long: 3 * time.Second}},
				})
				s.add(plan{
					scenario: "pauses", group: group, seed: seed, faults: faults, workers: 4, resources: []string{"sku/1", "sku/2", "sku/3"}, initial: 1_000_000,
					step: time.Millisecond, length: 8 * time.Second, think: 6 * time.Millisecond,
					pauses: []pause{{worker: 0, at: time.Second, long: 2500 * time.Millisecond}, {worker: 2, at: 2 * time.Second, long: 3 * time.Second}, {worker: 3, at: 5 * time.Second, long: 1200 * time.Millisecond}},
				})
			}
		}
	}
	s.suite.Judge()
	return s
}
