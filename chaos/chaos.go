// Package chaos runs guarded code in real processes, injects the faults of machines and networks into them,
// and judges what happened.
//
// A Workload is the code under test: it prepares data, operates on it, and checks it. A scenario is what goes
// wrong meanwhile: a schedule of faults that is made from a seed, or a script. Worker processes are this binary
// itself, executed again (Main, Reexec). They write a history, observers record what happened from outside, and
// checks compare both. The same scenario runs with controls: recipes that are known to break under its faults.
//
//	func TestMain(m *testing.M) { chaos.Main(m, deductions{}) }
//
//	func TestChaos(t *testing.T) { chaos.Test(t, chaos.Config{Workload: deductions{}}) }
//
// README.md has a whole example (examples/counter), how to read a verdict, and what it doesn't show: the same
// seed is the same schedule, not the same run, and "no violation in n runs" is worth as much as the damage that
// the same faults did to the controls.
package chaos

import (
	"context"
	"time"

	"github.com/fencekit/fencekit/chaos/internal/check"
	"github.com/fencekit/fencekit/chaos/internal/suite"
	"github.com/fencekit/fencekit/chaos/internal/worker"
)

// Verdict is the result of a run or of a suite.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"         // every property held, and what the scenario requires happened
	Violated     Verdict = "violated"     // a property was violated
	Inconclusive Verdict = "inconclusive" // nothing was violated, and nothing is proved
)

// Fenced is the group of runs under Fencekit. The others are controls.
const Fenced = check.Fenced

var (
	// ErrConfig: a Config is invalid, or the binary doesn't call this package as it must.
	ErrConfig = worker.ErrConfig
	// ErrWorkload: a run was not possible because of the Workload: its Prepare failed, or its Operate can't run under
	// a control.
	ErrWorkload = worker.ErrWorkload
	// ErrEnvironment: a run was not possible because a server could not be started or a fault could not be reverted.
	// It says nothing about the code under test.
	ErrEnvironment = suite.ErrEnvironment
)

// Suite is several runs.
type Suite struct {
	Runs    []Result
	Verdict Verdict
	Reason  string // of the Verdict: one sentence, with figures
}

// Result is one run of a scenario. It is made before the run: fields after Faults are set when that has ended.
type Result struct {
	Scenario string
	Group    string // Fenced, or the name of a control
	Seed     uint64
	Faults   bool // false: the same without faults

	Took     time.Duration
	Dir      string // of the run's files, below Config.Dir
	Verdict  Verdict
	Reason   string // of the Verdict, one sentence
	Failed   string // the error of the Workload's Check; empty if none
	Wrong    string // what else was wrong with the code under test, such as that it hung; empty if nothing
	Findings []Finding

	Operations int // that were called
	Unknown    int // of these: whose outcome stayed unknown
	Rejections int // of stale grants, by the database
	Injected   int // faults

	name string
}

// String names the run, as "pauses, etcd-mutex, seed 7, without faults".
func (r Result) String() string { return r.name }

// Finding is what a run showed of one property.
type Finding struct {
	Property string   // as "I3", or "workload"; README.md has a table
	Title    string   // what it says, in a few words
	Status   string   // "held", "violated", "unchecked" if the check lacks something that it needs, or "irrelevant"
	Detail   string   // with figures: what was checked, or what is wrong
	Examples []string // counterexamples, the first few
}

func resultOf(r *check.Run) Result {
	var findings []Finding
	for _, f := range r.Findings {
		findings = append(findings, Finding{f.Property, f.Title, string(f.Status), f.Detail, f.Examples})
	}
	return Result{
		Scenario: r.Scenario, Group: r.Group, Seed: r.Seed, Faults: r.Faults, Took: r.Took, Dir: r.Dir,
		Verdict: Verdict(r.Verdict), Reason: r.Reason, Failed: r.Failed, Wrong: r.Wrong, Findings: findings,
		Operations: r.Counts.Operations, Unknown: r.Counts.Unknown, Rejections: r.Counts.Rejections, Injected: r.Counts.Faults,
		name: r.String(),
	}
}

// Config says what to run. The zero value of each field means its default.
type Config struct {
	// Scenarios are names, families or patterns (path.Match) of scenarios, as
	// "fencectl-chaos list" shows them. Default: all, but for those of the family patroni if
	// Workload is set: they need Patroni and HAProxy on the machine.
	Scenarios []string
	// Groups are Fenced and names of controls, or patterns. Default: all; for Test
	// Fenced alone.
	Groups []string
	// Seed is the first seed, Seeds how many of them each scenario runs with. Default
	// 1 and 1.
	Seed  uint64
	Seeds int
	// Duration, in place of Seeds, is for how long new runs are begun; the runs with the
	// first seed are all done, however long that takes. Default: Seeds decides.
	Duration time.Duration
	// ScriptSeeds is how many of the seeds scripts and controls run with. Scripts do the
	// same with every seed, but not at the same moments. Default 1.
	ScriptSeeds int
	// Dir gets the files of the runs. It is created, and must be empty.
	Dir string
	// Parallel is how many runs go on at the same time, each on its own servers. Default 1.
	Parallel int
	// Workload is the code under test. Default: one that sells what is in stock.
	Workload Workload
	// Progress is called when a run begins, and when it ends. Calls don't overlap. Default:
	// no calls.
	Progress func(Progress)
}

// Progress is how far a suite is.
type Progress struct {
	Run   Result // that begins or has ended
	Ended bool   // Run has ended, and its Verdict is known
	Done  int    // number of runs that have ended
	Total int    // number of runs in all; with a Duration those with the first seed, which are all done
}

// Run does the runs that cfg asks for, and returns them with their common verdict. When it
// returns, cfg.Dir has everything, even if it fails. It fails with ErrConfig if cfg is invalid, with ErrWorkload or ErrEnvironment if
// a run was not possible, and with the cause of ctx's end.
func Run(ctx context.Context, cfg Config) (*Suite, error) {
	judged, err := run(ctx, cfg)
	if judged == nil {
		return nil, err
	}
	s := &Suite{Verdict: Verdict(judged.Verdict), Reason: judged.Reason}
	for i := range judged.Runs {
		s.Runs = append(s.Runs, resultOf(&judged.Runs[i]))
	}
	return s, err
}

func run(ctx context.Context, cfg Config) (*check.Suite, error) {
	if err := isRegistered(cfg.Workload); err != nil {
		return nil, err
	}
	c := suite.Config{
		Scenarios: cfg.Scenarios, Groups: cfg.Groups, Seed: cfg.Seed, Seeds: cfg.Seeds, Duration: cfg.Duration,
		ScriptSeeds: cfg.ScriptSeeds, Dir: cfg.Dir, Parallel: cfg.Parallel,
	}
	if cfg.Workload != nil {
		c.Workload = adapter{cfg.Workload}
	}
	if cfg.Progress != nil {
		c.Progress = func(p suite.Progress) { cfg.Progress(Progress{resultOf(p.Run), p.Ended, p.Done, p.Total}) }
	}
	return suite.Run(ctx, c)
}
